--[[ holder: the entry that holds a unique key.

text     key  the key

Returns  {state, id, delivery, until when at the latest, ms, the first such time, which its hand-over set, ms, or -1, when
         it was delivered, ms, or -1, 1 if it is held until its run has finished, or 0}, state one of left (its entry has
         left) | waits | in_flight, and only of the first more than the id; or {}, if nothing holds it
Cost     O(log N)
Keeps    changes nothing
]]
local state, id, delivery, ends = hold_on_key(key)
if not state then return {} end
if state ~= 'left' then return {state, id} end
local stamp = find_tombstone(name_of_key(key)) or ''
local when, first, run = string.match(stamp, '^.(%d%d%d%d%d%d%d%d%d%d%d%d%d)(%d*)(f?)$')
return {state, id, delivery, ends, tonumber(first) or -1, tonumber(when) or -1, run == 'f' and 1 or 0}
