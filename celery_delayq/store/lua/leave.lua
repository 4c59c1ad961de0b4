--[[ leave: a scanner that stops is no longer counted as alive, nor relied upon.

KEYS[1]  scanners    ZSET     scanner -> ms until which its last heartbeat counts
KEYS[2]  timer       STRING   which scanner is up next, and when
KEYS[3]  wake        CHANNEL  where scanners are told to look
KEYS[4]  heartbeats  HASH     scanner -> when it gave its last heartbeat, ms

ARGV[1]  scanner  who leaves

Returns  1, or 0 when it was not known
Cost     O(log S), S scanners
Keeps    the other scanners; one of them is told to look if this one was to be up
]]
local scanner = ARGV[1]

local promise = promise_of(timer)
local other = stand_in(scanners, scanner, math.floor(clock_us() / 1000))
if promise and promise.by == scanner then
  redis.call('DEL', timer)
  if not other or not tell(wake, other) then tell_all(wake) end
end
redis.pcall('HDEL', heartbeats, scanner)
return redis.call('ZREM', scanners, scanner)
