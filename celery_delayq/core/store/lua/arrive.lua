--[[ arrive: a copy of a relayed task is at a worker; tell which copy of this delivery was first.

Or a redelivered message is there: it may run, unless it became an entry.

text     mark     16 bytes that name one delivery of one task, or one message
number   attempt  the copy's attempt at that delivery; 0: it is a message
number   keep_ms  how old a generation gets, > 0; pauses do not count
number   most     marks after which a generation ends earlier, > 0

Returns  for a delivery, the attempt that arrived first, perhaps this one; for a message, 0: it became an entry,
         or -1: it may run, and earlier requests make no entry of it any more
Cost     O(1)
Keeps    the first attempt of a delivery, through the next generation
]]
local now_us = clock_us()
local first = marked(mark)
if first and (attempt > 0 or first < 0) then return math.max(first, 0) end
-- Without a permission to run, it runs all the same: the caller takes an error for "not known".
if attempt == 0 then allow_when_full(keys.arrived) end
local now, number = math.floor(now_us / 1000), attempt > 0 and attempt or whole(now_us)
set_marks(now, keep_ms, most, {mark, number})
return attempt > 0 and attempt or -1
