--[[ How a full Redis, which rolls nothing back, stays usable. ]]
-- The first write frees memory, even if it is none: if memory is full, Redis then allows the script's other writes. So
-- waiting tasks can be cancelled and moved in a full Redis, and go to another broker.
local function allow_when_full(hash)
  redis.call('HDEL', hash, '')
end

-- Whether memory is full. Redis then refuses this command, which changes nothing. Ask before anything is written.
local function is_memory_full()
  local said = redis.pcall('ZADD', keys.due, 'XX', 0, '')
  return type(said) == 'table' and string.find(said.err, 'OOM', 1, true) ~= nil
end

-- Rare: generations seldom end.

-- Make a generation the older one of two, and forget that one. This is not left to RENAME, which would free a million
-- fields at once.
local function make_older(new, old)
  redis.call('UNLINK', old)
  if redis.call('EXISTS', new) == 1 then redis.call('RENAME', new, old) end
end
