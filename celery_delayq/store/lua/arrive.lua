--[[ arrive: a copy of a relayed task is at a worker; which copy of this hand-over was there first.

Or a message is there that came before: it is let through, unless it became an entry.

text     mark     16 bytes that name one hand-over of one task, or one message
number   attempt  which attempt at that hand-over the copy is; 0: it is a message
number   keep_ms  how old a generation gets, > 0; pauses do not count
number   most     marks of a generation at which it ends before that, > 0

Returns  of a hand-over, the attempt that arrived first, which may be this one; of a message, 0: it became an entry,
         or -1: it is let through, and what was asked for it before makes none of it any more
Cost     O(1)
Keeps    what arrived first of a hand-over stays so, through the next generation
]]
local now_us = clock_us()
local first = marked(mark)
if first and (attempt > 0 or first < 0) then return math.max(first, 0) end
-- What is not let through runs all the same: the caller takes an error for not knowing.
if attempt == 0 then allow_when_full(keys.arrived) end
local now, number = math.floor(now_us / 1000), attempt > 0 and attempt or whole(now_us)
set_marks(now, keep_ms, most, {mark, number})
return attempt > 0 and attempt or -1
