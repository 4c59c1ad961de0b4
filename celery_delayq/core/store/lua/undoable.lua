--[[ undoable: find the lines of cancelled entries that an undo can bring back, slice by slice.

text    part    undo, or undo_old
text    cursor  0 at first; then as it was returned
number  count   look at about so many, 1 to 1000
text    bulk    only those of this bulk; empty: all

reply   cursor, found of id when bulk

Returns  the next cursor, 0 at the end; and of each line its id, when it was cancelled, us, and the name of its bulk
Cost     O(count)
Keeps    changes nothing
]]
local slice = redis.call('HSCAN', part == 'undo' and keys.undo or keys.undo_old, cursor, 'COUNT', count)
local lines, found = slice[2], {}
for at = 1, #lines, 2 do
  local when, its = string.match(lines[at + 1], '^(%d+) (%S+) ')
  if when and (bulk == '' or its == bulk) then
    found[#found + 1], found[#found + 2], found[#found + 3] = lines[at], when, its
  end
end
return {slice[1], found}
