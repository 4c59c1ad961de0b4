--[[ counts: how many entries are in which state, and what comes next.

KEYS[1]  due       ZSET  member -> due time, ms
KEYS[2]  relay     ZSET  member -> due time, ms
KEYS[3]  leased    ZSET  member -> lease deadline, ms
KEYS[4]  dead      ZSET  member -> since when, ms
KEYS[5]  scanners  ZSET  scanner -> ms until which its last heartbeat counts

Returns  {now in us, waiting, in flight, dead, live scanners, head of due, head of relay, ms or -1}
Cost     O(log S), S scanners
Keeps    changes nothing
]]

local now_us = clock_us()
return {
  now_us,
  redis.call('ZCARD', due) + redis.call('ZCARD', relay),
  redis.call('ZCARD', leased),
  redis.call('ZCARD', dead),
  redis.call('ZCOUNT', scanners, whole(math.floor(now_us / 1000)), '+inf'),
  head_of(due),
  head_of(relay),
}
