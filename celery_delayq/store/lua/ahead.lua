--[[ ahead: how many waiting entries fall due in each of the next spans of time.

number   span_ms    the length of a span, ms, > 0
number   spans      how many spans, 1..1000

reply    now, counts

Returns  now, us; for each span the number of entries that are due in it. The first span begins just after now; each
         ends with its last millisecond. Entries that are overdue, refused or parked are not counted
Cost     O(spans * log N)
Keeps    changes nothing
]]
local now_us = clock_us()
local now = math.floor(now_us / 1000)
local counts = {}
for at = 1, spans do
  local first, last = '(' .. whole(now + (at - 1) * span_ms), whole(now + at * span_ms)
  counts[at] = redis.call('ZCOUNT', keys.due, first, last) + redis.call('ZCOUNT', keys.relay, first, last)
end
return {now_us, counts}
