--[[ Marks of what has been at a worker: 16 bytes, in two generations that are turned by age.

arrived  HASH  mark -> of a hand-over: which attempt was there first; of a message: when (us) it was let through to run,
               or, less than 0, when (us) it became an entry of the store
               since, last -> when the generation began, and when it was given its last mark, ms
]]
local PAUSE = 60000 -- ms without a mark that do not make a generation older

-- What stands at a mark, as a number; nil where there is none.
local function marked(mark)
  return tonumber(redis.call('HGET', keys.arrived, mark) or redis.call('HGET', keys.arrived_old, mark) or '')
end

-- Set marks, `pairs` of mark and number. A generation ends at `keep_ms`, in which pauses do not count, or at `most`.
local function set_marks(now, keep_ms, most, pairs)
  local since, last = unpack(redis.call('HMGET', keys.arrived, 'since', 'last'))
  since, last = tonumber(since or ''), tonumber(last or '')
  -- While the broker is down, or all workers are, nothing is forgotten.
  if since and last and now - last > PAUSE then since = since + now - last end
  -- A generation may also have begun while Redis's clock was far ahead; or its age is no number.
  local is_over = since and not (math.abs(now - since) < keep_ms)
  if is_over or redis.call('HLEN', keys.arrived) - 2 >= most then
    -- Not left to RENAME, which would free a million fields there and then.
    redis.call('UNLINK', keys.arrived_old)
    redis.call('RENAME', keys.arrived, keys.arrived_old)
    since = nil
  end
  redis.call('HSET', keys.arrived, 'since', whole(since or now), 'last', whole(now), unpack(pairs))
end
