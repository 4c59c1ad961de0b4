--[[ What makes it safe that Redis rolls nothing back. ]]

-- The first write frees memory, if only none: when memory is full, Redis then lets the rest of a
-- script write. So what waits can leave a full Redis; only scheduling is refused.
local function allow_when_full(hash)
  redis.call('HDEL', hash, '')
end
