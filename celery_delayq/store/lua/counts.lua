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
ARGV[2]  max_bytes  nor at more than so many bytes of them, > 0

Returns  {now in us, scheduled, in flight, dead, live scanners, overdue, paused, refused, head of due, head of relay,
         due time of what is overdue longest, ms or -1}
         scheduled: with the refused; overdue: of these, all that are refused or due by now; overdue longest: of these
         without what is paused, and will be parked when a scanner meets it
Cost     O(log N + S), S scanners; O(R) of what was refused, and O(P) of what is due and paused, each `most` at most
Keeps    changes nothing
]]
local most, max_bytes = tonumber(ARGV[1]), tonumber(ARGV[2])

local SLICE = 50 -- that are read at a time, behind the first

local now_us = clock_us()
local now = whole(math.floor(now_us / 1000))
local tried, pauses = redis.call('ZCARD', refused), redis.call('HLEN', paused)
local oldest, bytes, cache = -1, 0, {}

-- Look at what is overdue in an index: at one entry, or at more while these are paused, or where their due times are
-- not told by the order that they stand in. Behind so many that are paused, the next one counts, be it paused or not.
local function look_at(index, last, is_in_due_order)
  local looked, slice = 0, 1
  repeat
    local found = redis.call('ZRANGEBYSCORE', index, '-inf', last, 'WITHSCORES', 'LIMIT', looked, slice)
    for at = 1, #found, 2 do
      local score = math.max(0, tonumber(found[at + 1]))
      if looked == most or bytes >= max_bytes then
        if is_in_due_order then oldest = earlier_head(oldest, score) end
        return
      end
      looked = looked + 1
      local record = redis.call('HGET', records, id_of(found[at]))
      local header_end = header_end_of(record)
      bytes = bytes + #(record or '')
      if pauses == 0 or not header_end or not paused_lane(record, header_end, paused, cache) then
        oldest = earlier_head(oldest, not is_in_due_order and header_end and due_of(record, header_end) or score)
        if is_in_due_order then return end
      end
    end
    local is_last = #found < 2 * slice
    slice = SLICE
  until is_last
end

local heads = {head_of(due), head_of(relay)}
for at, index in ipairs({due, relay}) do
  if pauses > 0 then
    look_at(index, now, true)
  elseif heads[at] >= 0 and heads[at] <= tonumber(now) then
    oldest = earlier_head(oldest, heads[at])
  end
end
if tried > 0 then look_at(refused, '+inf', false) end
return {
  now_us,
  redis.call('ZCARD', due) + redis.call('ZCARD', relay) + tried,
  redis.call('ZCARD', leased),
  redis.call('ZCARD', dead),
  #alive_in(scanners, heartbeats, tonumber(now)) / 2,
  redis.call('ZCOUNT', due, '-inf', now) + redis.call('ZCOUNT', relay, '-inf', now) + tried,
  redis.call('ZCARD', parked),
  tried,
  heads[1],
  heads[2],
  oldest,
}
