--[[ leave: a scanner that stops is no longer counted as alive, nor relied upon.

KEYS[1]  scanners  ZSET    scanner -> ms until which its last heartbeat counts
KEYS[2]  timer     STRING  which scanner has its timer set for the next head, and when
KEYS[3]  wake      LIST    at most one token

ARGV[1]  scanner  who leaves

Returns  1, or 0 when it was not known
Cost     O(log S), S scanners
Keeps    the other scanners; one of them is woken if this one was to be up
]]
local scanners, timer, wake = KEYS[1], KEYS[2], KEYS[3]
local scanner = ARGV[1]

if string.match(redis.call('GET', timer) or '', '^%d+:(.*)$') == scanner then
  redis.call('DEL', timer)
  if redis.call('LLEN', wake) == 0 then redis.call('LPUSH', wake, '1') end
end
return redis.call('ZREM', scanners, scanner)
