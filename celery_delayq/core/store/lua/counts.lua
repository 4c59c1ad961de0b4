--[[ counts: how many entries are in which state, and what comes next.

number   most       look at no more overdue records than this, in each index, > 0
number   max_bytes  nor at more than so many bytes of them, in each index, > 0
flag     living     1: count the scanners that are alive as well; or 0

reply    now, scheduled, in_flight, dead, scanners, overdue, paused, refused, due, relay, oldest,
         closed, cut, rules, behind, troubled, began, since, unknown, reconciled

Returns  now, us; the heads of due and relay, and the due time of the entry that is overdue longest, ms or -1;
         whether the shard is closed, see prelude/closed.lua; and how many due entries were not looked at,
         although something is paused; how many recurring rules there are, when a writer has to look at the first, ms or
         -1, and of how many the next run cannot be made; when the shard was joined first, and when the first of the living
         scanners joined it, ms, or -1 if that is not known; how many entries have the tag of those that no worker knew;
         and {tag, line, ...}, see reconciled.lua
         scheduled: with refused ones, and those behind another one, which are never overdue; overdue: those of them
         that are refused or due by now. A due entry that is held back counts as paused and nothing else, parked or
         not, if it is among the first `most` of an index. Beyond these it counts as overdue, as without a pause. An
         entry parked in a lane that comes back without a limit is not held back, and counts as overdue
Cost     O(log N); O(S), S scanners, if they are counted; O(R), R refused entries; and, during a pause, O(D), D due
         entries, each at most `most`, and as much for each lane that comes back without a limit
Keeps    changes nothing
]]
local now_us = clock_us()
local now = whole(math.floor(now_us / 1000))
local tried, lanes = redis.call('ZCARD', keys.refused), new_lanes(now_us)
local oldest, cut = -1, 0

-- Look at the overdue entries of an index. After `most` paused ones, the next one counts even if it is paused. Return
-- how many of those are paused; and, if they are in due order, when the first other one is due, overdue or not; or -1.
local function look_at(index, last, is_in_due_order)
  local held, first = 0, -1
  local looked = look_through(index, last, most, max_bytes, function(record, header_end, text)
    if header_end and is_held(lanes, record, header_end) then
      held = held + 1
    else
      local score = math.max(0, tonumber(text))
      first = first < 0 and score or first
      oldest = earlier_head(oldest, not is_in_due_order and header_end and due_of(record, header_end) or score)
    end
  end)
  if lanes.any then cut = cut + redis.call('ZCOUNT', index, '-inf', last) - looked end
  if is_in_due_order and first < 0 then
    local other = redis.call('ZRANGE', index, looked, looked, 'WITHSCORES')
    first = other[2] and math.max(0, tonumber(other[2])) or -1
    if first <= tonumber(now) then oldest = earlier_head(oldest, first) end
  end
  return held, first
end

local heads, held = {}, 0
for at, index in ipairs({keys.due, keys.relay}) do
  if lanes.any then
    local some
    some, heads[at] = look_at(index, now, true)
    held = held + some
  else
    heads[at] = head_of(index)
    if heads[at] <= tonumber(now) then oldest = earlier_head(oldest, heads[at]) end
  end
end
local held_back = tried > 0 and look_at(keys.refused, '+inf', false) or 0
tried = tried - held_back
local free = 0
if lanes.any then
  local found, rest = parked_freely(lanes, most, max_bytes)
  free, cut = #found + rest, cut + rest
  for _, there in ipairs(found) do
    heads[1] = earlier_head(heads[1], parked_due(there))
    oldest = earlier_head(oldest, parked_due(there))
  end
end
local overdue = free - held
  + redis.call('ZCOUNT', keys.due, '-inf', now) + redis.call('ZCOUNT', keys.relay, '-inf', now)
local scanners, since = living and alive_in(tonumber(now)) or {}, -1
for at = 4, #scanners, 4 do since = earlier_head(since, scanners[at]) end
-- Those that were changed just now have 0.
local look = redis.call('ZRANGEBYSCORE', keys.rules_next, '(0', '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2] or math.huge
look = math.min(tonumber(look), rule_aside_since() or math.huge)
return {
  now_us,
  redis.call('ZCARD', keys.due) + redis.call('ZCARD', keys.relay) + redis.call('ZCARD', keys.behind)
    - held + tried + free,
  redis.call('ZCARD', keys.leased),
  redis.call('ZCARD', keys.dead),
  #scanners / 4,
  overdue + tried,
  redis.call('ZCARD', keys.parked) - free + held + held_back,
  tried,
  heads[1],
  heads[2],
  oldest,
  redis.call('HGET', keys.meta, 'closed') or '',
  cut,
  redis.call('HLEN', keys.rules),
  look < math.huge and look or -1,
  redis.call('HLEN', keys.rules_trouble),
  tonumber(redis.call('HGET', keys.meta, 'began') or '') or -1,
  since,
  redis.call('ZLEXCOUNT', keys.tags, '[delayq:unknown\0', '(delayq:unknown\1'),
  redis.call('HSCAN', keys.reconciled, '0', 'COUNT', 1000)[2],
}
