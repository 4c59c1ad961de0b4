--[[ What makes it safe that Redis rolls nothing back. ]]

-- The first write frees memory, if only none: when memory is full, Redis then lets the rest of a
-- script write. So what waits can leave a full Redis; only scheduling is refused.
local function allow_when_full(hash)
  redis.call('HDEL', hash, '')
end

-- Stop at a key of ours that holds something foreign, while nothing is written yet: there is no
-- rolling back.
local function check_types(zsets, hashes)
  for _, key in ipairs(zsets) do redis.call('ZCARD', key) end
  for _, key in ipairs(hashes) do redis.call('HLEN', key) end
end
