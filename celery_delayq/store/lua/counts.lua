--[[ counts: how many entries are in which state, and what comes next.

KEYS[1]  due       ZSET  member -> due time, ms
KEYS[2]  relay     ZSET  member -> due time, ms
KEYS[3]  leased    ZSET  member -> lease deadline, ms
KEYS[4]  refused   ZSET  member -> next try, ms
KEYS[5]  parked    ZSET  lane, due time, kind, member -> 0
KEYS[6]  dead      ZSET  member -> since when, ms
KEYS[7]  scanners  ZSET  scanner -> ms until which its last heartbeat counts

Returns  {now in us, scheduled, in flight, dead, live scanners, overdue, paused, refused, head of due, head of relay,
         ms or -1}
         scheduled: with the refused; overdue: of these, all that are refused or due by now
Cost     O(log N)
Keeps    changes nothing
]]

local now_us = clock_us()
local now = whole(math.floor(now_us / 1000))
local tried = redis.call('ZCARD', refused)
return {
  now_us,
  redis.call('ZCARD', due) + redis.call('ZCARD', relay) + tried,
  redis.call('ZCARD', leased),
  redis.call('ZCARD', dead),
  redis.call('ZCOUNT', scanners, now, '+inf'),
  redis.call('ZCOUNT', due, '-inf', now) + redis.call('ZCOUNT', relay, '-inf', now) + tried,
  redis.call('ZCARD', parked),
  tried,
  head_of(due),
  head_of(relay),
}
