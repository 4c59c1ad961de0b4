--[[ scanners: the scanners that are alive.

reply    of name seen reads since

Returns  of each its name, the time of its last heartbeat, ms, the newest format that it reads, and when it joined
         the shard, ms, or -1; of a thousand at most
Cost     O(log S + M), M live scanners
Keeps    changes nothing
]]
return alive_in(math.floor(clock_us() / 1000))
