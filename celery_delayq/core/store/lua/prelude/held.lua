--[[ Keys that are held after their entries have left, and the entries that wait behind those.

Once the entry that has a key has left, `holders` has the id, HELD and the delivery; and `held` the end.

An entry waits in `behind` while another one holds its key, or may be about to: at most one for each key. `holders` names
its member under name_of_key; `held` has the time of the next look at its key, at the latest the end. The step that frees
the key lets it come forward: it gets the key, and waits for its due time.
]]
local LOOK = 60000 -- ms after which to look again at a holder that has not left

-- Rare: most entries have no key.

-- Until when a key is held although its entry leaves, ms; nil: it is free.
local function held_until(one, how, now)
  local kind, ms = string.match(one.hold or '', '^(%l)(%d+)')
  local has_left = how == 'h' or how == 's'
  local from = (kind == 'f' and how == 'h' or kind == 'd' and has_left) and now
    or kind == 'w' and has_left and math.floor(tonumber(one.created) / 1000)
  return from and from + ms > now and from + ms or nil
end

-- Hold keys on, before their entries leave.
local function hold_on(keyed, how, now)
  for _, one in ipairs(keyed) do
    one.ends = held_until(one, how, now)
    local id, delivery
    if one.ends then id, delivery = holder_of(one.key) end
    if id == one.id and not delivery then
      redis.call('ZADD', keys.held, whole(one.ends), one.key)
      redis.call('HSET', keys.holders, one.key, one.id .. HELD .. one.delivery)
    end
  end
end

-- The id of the entry that an entry of `behind` waits for, or ''; and if that has left, the end, ms.
local function holder_before(record, header_end)
  local extras = extras_of(record, header_end)
  if not extras or not extras.key then return '' end
  local id, delivery = holder_of(extras.key)
  return id or '', delivery and redis.call('ZSCORE', keys.held, extras.key)
end

-- An entry of `behind` gets its key, and waits. Overdue, it is due now: it was not late. The new place comes before the
-- old one goes. Return the bytes read.
local function come_forward(key, member)
  local now_us, id = clock_us(), id_of(member)
  local now, record = math.floor(now_us / 1000), redis.call('HGET', keys.records, id)
  local header_end = header_end_of(record)
  local index, due = keys.relay, now -- there it becomes a dead letter, if its record cannot be read
  redis.call('HSET', keys.holders, key, id)
  if header_end then
    index, due = index_of(record), math.max(now, due_of(record, header_end))
    if due == now then redis.call('HSET', keys.records, id, with_due(record, header_end, whole(now), now_us)) end
  end
  redis.call('ZADD', index, whole(due), member)
  redis.call('ZREM', keys.behind, member)
  wake_for(due, now, promise_of())
  return #(record or '')
end

-- Free a key from its holder, for the entry behind it, if any: its member. Return the bytes read.
local function free_key(key, behind)
  local bytes = 0
  if behind and redis.call('ZSCORE', keys.behind, behind) then
    bytes = come_forward(key, behind)
  else
    redis.call('HDEL', keys.holders, key)
  end
  if behind then redis.call('HDEL', keys.holders, name_of_key(key)) end
  redis.call('ZREM', keys.held, key)
  return bytes
end

-- An entry is behind the holder of a key no more.
local function leave_behind(key, member)
  redis.call('HDEL', keys.holders, name_of_key(key))
  redis.call('ZREM', keys.behind, member)
end

-- An entry of `behind` is now the one behind the holder of a key.
local function stand_behind(key, member)
  redis.call('ZADD', keys.held, 'NX', whole(math.floor(clock_us() / 1000) + LOOK), key)
  redis.call('HSET', keys.holders, name_of_key(key), member)
end

-- The body of an entry that goes behind another one. If its key is held for a while, that counts from its own delivery.
local function body_behind(body)
  local at = string.find(body, HELD .. 'w', extras_start(body, 1 - FLAGS), true)
  return at and sub(body, 1, at) .. 'd' .. sub(body, at + 2) or body
end

-- Remove the entries of note_extras; `stamp` is the tombstone for their keys, if they leave one.
local function drop_extras(leaving, stamp)
  for _, one in ipairs(leaving.keyed or {}) do
    -- With the end that the hand-over sets: a later one is a worker's.
    if stamp then
      local is_for_run = one.ends and sub(one.hold, 1, 1) == 'f'
      local ends = one.ends and whole(one.ends) .. (is_for_run and 'f' or '') or ''
      redis.call('HSET', keys.tombstones, name_of_key(one.key), stamp .. ends)
    end
    local id, delivery, behind = holder_of(one.key)
    if behind == one.member then
      leave_behind(one.key, behind)
      behind = nil
    end
    local is_its = id == one.id and not delivery -- of a delivery before, it is not
    if one.key ~= leaving.kept_key and not one.ends and is_its then free_key(one.key, behind) end
  end
  local tagged = leaving.tagged or {}
  for from = 1, #tagged, CHUNK do
    redis.call('ZREM', keys.tags, unpack(tagged, from, math.min(from + CHUNK - 1, #tagged)))
  end
end
