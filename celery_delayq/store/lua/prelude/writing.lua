--[[ How a full Redis, which rolls nothing back, stays usable. ]]
-- The first write frees memory, even if it is none: if memory is full, Redis then allows the script's other writes. So
-- waiting tasks can leave a full Redis; it refuses only scheduling.
local function allow_when_full(hash)
  redis.call('HDEL', hash, '')
end

-- Rare: a generation lasts.

-- Make a generation the older one of two, and forget that one. This is not left to RENAME, which would free a million
-- fields at once.
local function make_older(new, old)
  redis.call('UNLINK', old)
  if redis.call('EXISTS', new) == 1 then redis.call('RENAME', new, old) end
end
