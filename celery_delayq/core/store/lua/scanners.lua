--[[ scanners: the scanners that are alive.

reply    of name seen

Returns  each one's name and the time of its last heartbeat, ms; of a thousand at most
Cost     O(log S + M), M live scanners
Keeps    changes nothing
]]
return alive_in(math.floor(clock_us() / 1000))
