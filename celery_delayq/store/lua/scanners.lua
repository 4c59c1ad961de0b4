--[[ scanners: which scanners are alive.

KEYS[1]  scanners    ZSET  scanner -> ms until which its last heartbeat counts
KEYS[2]  heartbeats  HASH  scanner -> when it gave its last heartbeat, ms

Returns  {scanner, when it gave its last heartbeat, ms, ...}, of a thousand at most
Cost     O(log S + M), M scanners that are alive
Keeps    changes nothing
]]
return alive_in(scanners, heartbeats, math.floor(clock_us() / 1000))
