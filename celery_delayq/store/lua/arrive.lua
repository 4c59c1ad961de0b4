--[[ arrive: a copy of a relayed task is at a worker; which copy of this hand-over was there first.

KEYS[1]  arrived      HASH  mark -> attempt that was first, or less than 0; see prelude/marks.lua
KEYS[2]  arrived_old  HASH  the generation before

ARGV[1]  mark     16 bytes that name one hand-over of one task, or one message
ARGV[2]  attempt  which attempt at that hand-over the copy is; 0: only look
ARGV[3]  keep_ms  how old a generation gets, > 0; pauses do not count
ARGV[4]  most     marks of a generation at which it ends before that, > 0

Returns  the attempt that arrived first, or 0 where that message became an entry; where there is no mark, the copy's
         own, or, if it was only to look, -1
Cost     O(1)
Keeps    what arrived first of a hand-over stays so, through the next generation
]]
local mark, attempt = ARGV[1], tonumber(ARGV[2])
local keep_ms, most = tonumber(ARGV[3]), tonumber(ARGV[4])

local first = marked(arrived, arrived_old, mark)
if first then return math.max(first, 0) end
if attempt == 0 then return -1 end
set_marks(arrived, arrived_old, math.floor(clock_us() / 1000), keep_ms, most, {mark, attempt})
return attempt
