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
         scheduled: with the refused; overdue: of these, all that are refused or due by now. What is paused, and will be
         parked when a scanner meets it, counts as paused, and as nothing else: so far as it is among the first `most`
         of an index. Behind these it counts as overdue, as if nothing were paused
Cost     O(log N + S), S scanners; O(R) of what was refused, and, where something is paused, O(D) of what is due, each
         `most` at most
Keeps    changes nothing
]]
local most, max_bytes = tonumber(ARGV[1]), tonumber(ARGV[2])

local SLICE = 50 -- that are read at a time

local now_us = clock_us()
local now = whole(math.floor(now_us / 1000))
local tried, pauses = redis.call('ZCARD', refused), redis.call('HLEN', paused)
local oldest, cache = -1, {}

-- Look at what is overdue in an index. Behind so many that are paused, the next one counts, be it paused or not. Returns
-- how many are paused, of those that were looked at; and, where they stand in due order, when the first other one is
-- due: overdue or not; or -1.
local function look_at(index, last, is_in_due_order)
  local looked, held, bytes, first = 0, 0, 0, -1
  repeat
    local found = redis.call('ZRANGEBYSCORE', index, '-inf', last, 'WITHSCORES', 'LIMIT', looked, SLICE)
    for at = 1, #found, 2 do
      if looked == most or bytes >= max_bytes then
        found = {}
        break
      end
      looked = looked + 1
      local record = redis.call('HGET', records, id_of(found[at]))
      local header_end = header_end_of(record)
      bytes = bytes + #(record or '')
      if pauses > 0 and header_end and paused_lane(record, header_end, paused, cache) then
        held = held + 1
      else
        local score = math.max(0, tonumber(found[at + 1]))
        first = first < 0 and score or first
        oldest = earlier_head(oldest, not is_in_due_order and header_end and due_of(record, header_end) or score)
      end
    end
  until #found < 2 * SLICE
  if is_in_due_order and first < 0 then
    local other = redis.call('ZRANGE', index, looked, looked, 'WITHSCORES')
    first = other[2] and math.max(0, tonumber(other[2])) or -1
    if first <= tonumber(now) then oldest = earlier_head(oldest, first) end
  end
  return held, first
end

local heads, held = {}, 0
for at, index in ipairs({due, relay}) do
  if pauses > 0 then
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
local overdue = redis.call('ZCOUNT', due, '-inf', now) + redis.call('ZCOUNT', relay, '-inf', now) - held
return {
  now_us,
  redis.call('ZCARD', due) + redis.call('ZCARD', relay) - held + tried,
  redis.call('ZCARD', leased),
  redis.call('ZCARD', dead),
  #alive_in(scanners, heartbeats, tonumber(now)) / 2,
  overdue + tried,
  redis.call('ZCARD', parked) + held + held_back,
  tried,
  heads[1],
  heads[2],
  oldest,
}
