--[[ forgo: note of ids that they were sent to the workers, which drop them, so that no undo brings their tasks back.

text...  ids  1 to 1000

Returns  how many of them had a line
Cost     O(1) an id
Keeps    entries
]]
local count = 0
for _, id in ipairs(ids) do
  for _, hash in ipairs({keys.undo, keys.undo_old}) do
    if redis.call('HEXISTS', hash, id) == 1 then
      count = count + 1
      -- A shorter text in place of the line: a full Redis may refuse it, and then loses the line.
      redis.call('HDEL', hash, id)
      redis.pcall('HSET', hash, id, 'revoked')
    end
  end
end
return count
