--[[ ahead: how many waiting entries fall due in each of some spans of time.

number   after_ms   the first span begins just after this time, ms; -1: after now
number   span_ms    the length of a span, ms, > 0
number   spans      how many spans, 1..1000

reply    now, counts

Returns  now, us; for each span the number of entries that are due in it, with its last millisecond. Entries that are
         refused or parked are not counted
Cost     O(spans * log N)
Keeps    changes nothing
]]
local now_us = clock_us()
local start = after_ms < 0 and math.floor(now_us / 1000) or after_ms
local counts = {}
for at = 1, spans do
  local first, last = '(' .. whole(start + (at - 1) * span_ms), whole(start + at * span_ms)
  counts[at] = redis.call('ZCOUNT', keys.due, first, last) + redis.call('ZCOUNT', keys.relay, first, last)
end
return {now_us, counts}
