--[[ holder: the entry that holds a unique key.

text     key  the key

Returns  a word: none, if nothing holds it; waits | in_flight | left (its entry has left), with i the id; the last also
         with d the delivery; u until when it holds it at the latest, ms; f the first such time, which its hand-over set, and
         t when it was delivered, ms, if that is known; and r, if it is held until its run has finished
Cost     O(log N)
Keeps    changes nothing
]]
local state, id, delivery, ends = hold_on_key(key)
if not state then return 'none' end
if state ~= 'left' then return state .. quoted('i' .. id) end
local stamp = find_tombstone(name_of_key(key)) or ''
local when, first, run = string.match(stamp, '^.(%d%d%d%d%d%d%d%d%d%d%d%d%d)(%d*)(f?)$')
return state .. quoted('i' .. id) .. quoted('d' .. delivery) .. ':u' .. whole(ends)
  .. (when and ':t' .. when or '') .. (first and first ~= '' and ':f' .. first or '') .. (run == 'f' and ':r' or '')
