--[[ counts: how many entries are in which state, and what comes next.

KEYS[1]   due         ZSET  member -> due time, ms
KEYS[2]   relay       ZSET  member -> due time, ms
KEYS[3]   leased      ZSET  member -> lease deadline, ms
KEYS[4]   refused     ZSET  member -> next try, ms
KEYS[5]   parked      ZSET  lane, due time, kind, member -> 0
KEYS[6]   dead        ZSET  member -> since when, ms
KEYS[7]   scanners    ZSET  scanner -> ms until which its last heartbeat counts
KEYS[8]   paused      HASH  lane -> what is paused, and how it comes back
KEYS[9]   records     HASH  id -> record
KEYS[10]  heartbeats  HASH  scanner -> when it gave its last heartbeat, ms

ARGV[1]  most       look at no more than so many records that are overdue, of each index, > 0
ARGV[2]  max_bytes  nor at more than so many bytes of them, of each index, > 0

Returns  {now in us, scheduled, in flight, dead, live scanners, overdue, paused, refused, head of due, head of relay,
         due time of what is overdue longest, ms or -1}
         scheduled: with the refused; overdue: of these, all that are refused or due by now. What is due and held back
         counts as paused, and as nothing else, be it parked or not: so far as it is among the first `most` of an
         index. Behind these it counts as overdue, as if nothing were paused. What is parked in a lane that comes back
         as fast as it goes is held back by nothing, and counts as overdue
Cost     O(log N + S), S scanners; O(R) of what was refused, and, where something is paused, O(D) of what is due, each
         `most` at most, and as much for each lane that comes back as fast as it goes
Keeps    changes nothing
]]
local most, max_bytes = tonumber(ARGV[1]), tonumber(ARGV[2])

local now_us = clock_us()
local now = whole(math.floor(now_us / 1000))
local tried, lanes = redis.call('ZCARD', refused), new_lanes(paused, now_us)
local oldest = -1

-- Look at what is overdue in an index. Behind so many that are paused, the next one counts, be it paused or not. Returns
-- how many are paused, of those that were looked at; and, where they stand in due order, when the first other one is
-- due: overdue or not; or -1.
local function look_at(index, last, is_in_due_order)
  local held, first = 0, -1
  local looked = look_through(index, last, most, max_bytes, records, function(record, header_end, text)
    if header_end and is_held(lanes, record, header_end) then
      held = held + 1
    else
      local score = math.max(0, tonumber(text))
      first = first < 0 and score or first
      oldest = earlier_head(oldest, not is_in_due_order and header_end and due_of(record, header_end) or score)
    end
  end)
  if is_in_due_order and first < 0 then
    local other = redis.call('ZRANGE', index, looked, looked, 'WITHSCORES')
    first = other[2] and math.max(0, tonumber(other[2])) or -1
    if first <= tonumber(now) then oldest = earlier_head(oldest, first) end
  end
  return held, first
end

local heads, held = {}, 0
for at, index in ipairs({due, relay}) do
  if lanes.any then
    local some
    some, heads[at] = look_at(index, now, true)
    held = held + some
  else
    heads[at] = head_of(index)
    if heads[at] <= tonumber(now) then oldest = earlier_head(oldest, heads[at]) end
  end
end
local held_back = tried > 0 and look_at(refused, '+inf', false) or 0
tried = tried - held_back
local free = 0
if lanes.any then
  local found, rest = parked_freely(lanes, parked, most, max_bytes, records)
  free = #found + rest
  for _, there in ipairs(found) do
    heads[1] = earlier_head(heads[1], number_in(there, 8, 14))
    oldest = earlier_head(oldest, number_in(there, 8, 14))
  end
end
local overdue = free + redis.call('ZCOUNT', due, '-inf', now) + redis.call('ZCOUNT', relay, '-inf', now) - held
return {
  now_us,
  redis.call('ZCARD', due) + redis.call('ZCARD', relay) - held + tried + free,
  redis.call('ZCARD', leased),
  redis.call('ZCARD', dead),
  #alive_in(scanners, heartbeats, tonumber(now)) / 2,
  overdue + tried,
  redis.call('ZCARD', parked) - free + held + held_back,
  tried,
  heads[1],
  heads[2],
  oldest,
}
