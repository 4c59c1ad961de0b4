--[[ Marks of messages that were at a worker: 16 bytes, in two generations that are turned by age.

They are not among the tombstones, as they age otherwise: longer by a lease, and not while no worker is there.

arrived  HASH  mark -> of a delivery: its first attempt at a worker; of a message: when (us) it was allowed to run, or,
               less than 0, when (us) it became an entry of the store
               since, last -> when the generation began, and when it got its last mark, ms
]]
local PAUSE = 60000 -- ms: a longer time without a mark does not make a generation older

-- Rare: only messages that came to a worker have marks.

-- The number of a mark; nil if there is none.
local function marked(mark)
  return tonumber(redis.call('HGET', keys.arrived, mark) or redis.call('HGET', keys.arrived_old, mark) or '')
end

-- Why a message that a broker delivered may not become an entry, as its mark says; or nil. See schedule.lua.
local function refused_by_mark(call, entry)
  local us, received = marked(entry.mark), tonumber(entry.received)
  if not us then return nil end
  if us < 0 and -us >= (entry.again == '1' and 0 or received) then return 'taken' end
  -- It runs elsewhere. A worker that died before that does not repeat its request; a worker that runs it does.
  if us > (received > 0 and received or call.issued) then return received > 0 and 'scheduled' or 'again' end
end

-- Set marks, `pairs` of mark and number. A generation ends at the age `keep_ms`, without pauses, or at `most` marks.
local function set_marks(now, keep_ms, most, pairs)
  local since, last = unpack(redis.call('HMGET', keys.arrived, 'since', 'last'))
  since, last = tonumber(since or ''), tonumber(last or '')
  -- While the broker or all workers are down, nothing is forgotten.
  if since and last and now - last > PAUSE then since = since + now - last end
  -- A generation may have begun while Redis's clock was far ahead; or its age is no number.
  local is_over = since and not (math.abs(now - since) < keep_ms)
  if is_over or redis.call('HLEN', keys.arrived) - 2 >= most then
    make_older(keys.arrived, keys.arrived_old)
    since = nil
  end
  redis.call('HSET', keys.arrived, 'since', whole(since or now), 'last', whole(now), unpack(pairs))
end
