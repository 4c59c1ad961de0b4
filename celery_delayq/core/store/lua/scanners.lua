--[[ scanners: the scanners that are alive.

reply    of name seen reads

Returns  of each its name, the time of its last heartbeat, ms, and the newest format of records that it reads; of a thousand
         at most
Cost     O(log S + M), M live scanners
Keeps    changes nothing
]]
return alive_in(math.floor(clock_us() / 1000))
