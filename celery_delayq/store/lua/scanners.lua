--[[ scanners: who hands over, and gave a sign of life.

KEYS[1]  scanners  ZSET  scanner -> ms until which its last heartbeat counts

ARGV[1]  limit     most scanners, > 0

Returns  {scanner, ms until which its last heartbeat counts, ...} of those that are alive, the earliest first
Cost     O(log S + M), M <= limit
Keeps    changes nothing
]]
local limit = tonumber(ARGV[1])

local now = whole(math.floor(clock_us() / 1000))
return redis.call('ZRANGEBYSCORE', scanners, now, '+inf', 'WITHSCORES', 'LIMIT', 0, limit)
