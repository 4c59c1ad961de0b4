--[[ How a full Redis, which rolls nothing back, stays usable. ]]

-- The first write frees memory, even if it is none: if memory is full, Redis then allows the script's other writes. So
-- waiting tasks can leave a full Redis; it refuses only scheduling.
local function allow_when_full(hash)
  redis.call('HDEL', hash, '')
end
