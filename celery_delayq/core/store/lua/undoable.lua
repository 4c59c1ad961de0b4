--[[ undoable: find the lines of entries that an undo can bring back, or move back, slice by slice.

text    part    undo, or undo_old
text    cursor  0 at first; then as it was returned
number  count   look at about so many, 1 to 1000, or at some 1 MB of lines
text    bulk    only those of this bulk; empty: all
flag    tells   1: return which they are; 0: only how many

reply   cursor, left, number, found of id when bulk moved

Returns  the next cursor, 0 at the end; how many entries of the bulk are not back, -1 if no cancel of it is known; how many
         lines were found; and of each line its id, when it was cancelled or moved, us, the name of its bulk, and 1 if it was
         moved, or 0
Cost     O(count)
Keeps    changes nothing
]]
local SLICE, MOST_BYTES = 100, 1000000
local found, number, looked, bytes = {}, 0, 0, 0
repeat
  local lines
  cursor, lines = unpack(redis.call('HSCAN', part == 'undo' and keys.undo or keys.undo_old, cursor, 'COUNT', SLICE))
  looked = looked + SLICE
  for at = 1, #lines - 1, 2 do
    bytes = bytes + #lines[at + 1]
    local when, its = string.match(lines[at + 1], '^(%d+) (%S+) ')
    local is_shown = when and (bulk == '' or its == bulk)
    -- A later cancel of this id has a line of its own.
    if is_shown and (part == 'undo' or redis.call('HEXISTS', keys.undo, lines[at]) == 0) then
      number = number + 1
      if tells then
        local is_move = string.sub(lines[at], 1, 1) == MOVED
        found[#found + 1], found[#found + 2] = is_move and string.sub(lines[at], 2) or lines[at], when
        found[#found + 1], found[#found + 2] = its, is_move and 1 or 0
      end
    end
  end
until cursor == '0' or looked >= count or bytes >= MOST_BYTES
local _, left = left_of(bulk)
return {cursor, left or -1, number, found}
