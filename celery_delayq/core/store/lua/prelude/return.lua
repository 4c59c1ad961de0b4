--[[ Entries come back as they were, each by itself: those of a dump, and cancelled ones.

An entry that comes back has, as texts, the fields of the rows of load.lua. A cancelled one has left_ms, too: when it was
cancelled.
]]
-- What the entries that come back in one step have in common.
local function begin_return(call)
  return {
    call = call,
    changed = seven_bytes(call.now_us),
    brought = {}, here = {}, -- templates that came along, even with a refused entry; and those that are stored
    leftovers = redis.call('EXISTS', keys.claims, keys.errors) > 0,
    is_owing = redis.call('EXISTS', keys.outbox) == 1,
    earliest = math.huge,
  }
end

-- Whether a newer change has overtaken the request, which wants this entry back. Take its template along. To be asked of
-- all entries before the first write.
local function is_return_stale(back, entry)
  local call, name, extras = back.call, name_in(entry.body), extras_of_body(entry.body)
  if name and entry.template ~= '' then back.brought[name] = entry.template end
  return is_fenced(call, entry.id) or extras and extras.key and is_key_fenced(call, name_of_key(extras.key))
end

-- Return why an entry's id forbids it; or nil.
local function met_by(back, entry)
  local id, created, now = entry.id, entry.created, back.call.now
  local own = redis.call('HGET', keys.records, id)
  local header_end = header_end_of(own)
  if header_end and created_of(own, header_end) == created then return 'here' end
  if created == '' then return own and 'taken' or nil end
  local stone = find_tombstone(id)
  if stone and entry.left_ms and tonumber(sub(stone, 2)) == entry.left_ms then stone = false end -- of its own cancel
  -- A time in the future comes from a clock ahead of this one, and shows no order.
  local created_ms = math.floor(tonumber(created) / 1000)
  -- Even if its id has an entry again: the task may have scheduled itself anew when it ran.
  if stone and (tonumber(sub(stone, 2)) >= created_ms or created_ms > now) then return 'left' end
  return own and 'taken' or nil
end

-- The count comes before the use: if Redis stops the script half-way, it is too high, never too low.
local function share_again(back, name)
  redis.call('HINCRBY', keys.template_uses, name, 1)
  if not back.here[name] then redis.call('HSET', keys.templates, name, back.brought[name]) end
  back.here[name] = true
end

-- Bring back an entry; return `loaded`, or why not.
local function bring_back(back, entry)
  local call, id, created, header, body = back.call, entry.id, entry.created, entry.header, entry.body
  local place, claim, error = entry.place, entry.claim, entry.error
  local why = met_by(back, entry)
  if created == '' then created = string.format('%016.0f', call.now_us) end
  local extras = extras_of_body(body)
  local key = extras and extras.key
  local is_behind = place == 'behind' and key
  if place == 'behind' and not key then place = 'waiting' end
  local holder = not why and key and entry.named == '1' and other_holder(key, id)
  local second = not why and is_behind and select(3, holder_of(key))
  if is_behind then holder = second and id_of(second) ~= id and id_of(second) end
  if holder and place ~= 'dead' then why = 'held' .. quoted(holder) end
  if why then return why end
  -- It had lost its key under a lease.
  if key and entry.named ~= '1' and place ~= 'dead' and not is_behind then body = without_key(body, 1 - FLAGS) end

  -- The first write is one that a full Redis refuses. After one that frees memory it would let all others pass.
  local size = #header + #body + 49
  local order = six_bytes(take_numbers(1, not call.has_numbers) * 2 + (size > SMALL and 1 or 0))
  call.has_numbers = true
  local name = name_in(body)
  if name then share_again(back, name) end
  local index = index_of(header)
  local score = place == 'waiting' and entry.due or entry.ms
  if place ~= 'waiting' then index = is_behind and keys.behind or place == 'dead' and keys.dead or keys.refused end
  if is_behind then body = body_behind(body) end
  if place ~= 'waiting' or claim ~= '' or error ~= '' then make_untidy() end
  -- The place comes before its record, so that no record lacks one.
  redis.call('ZADD', index, score, order .. id)
  if extras then
    local takes_key = entry.named == '1' and not holder and not is_behind
    index_extras({key = takes_key and key, tags = extras.tags}, id, order .. id)
  end
  if is_behind then stand_behind(key, order .. id) end
  if back.leftovers then
    redis.call('HDEL', keys.claims, id)
    redis.call('HDEL', keys.errors, id)
    redis.call('ZREM', keys.dead, RECORDLESS .. id)
  end
  if claim ~= '' then redis.call('HSET', keys.claims, id, claim .. ':0:') end
  if error ~= '' then redis.call('HSET', keys.errors, id, error) end
  redis.call('HSET', keys.records, id, record_of(header, order, entry.due, created, back.changed, body))
  -- It is no longer revoked.
  if back.is_owing then
    redis.call('HDEL', keys.outbox_messages, id)
    redis.call('ZREM', keys.outbox, id)
  end
  if place ~= 'dead' then back.earliest = math.min(back.earliest, tonumber(score)) end
  return 'loaded'
end
