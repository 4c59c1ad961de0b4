--[[ load: store dumped entries as they were; each is stored or refused by itself.

change   a call: see prelude/call.lua
rows...    entries    of each entry, one after the other:
         id           the task's id
         due          its due time, unix ms
         created      when it was scheduled, us, 16 digits; empty: now, even if its id has left the store
         destination  the record's header, from its second byte
         body         the record's part from the flags on
         template     the template that `body` shares; empty if it comes with an entry before this one
         place        waiting | refused | behind | dead
         ms           refused: its next try, dead: since when, behind: its due time, unix ms; else 0
         claim        empty; or attempts, refusals, and 1 if it may have been delivered, else 0, with colons between
         error        its last error; or empty
         named        1: it holds its key; or 0

Returns  the answer, a text with a word for each entry: loaded; or why it was not: here, it exists already, with that
         time of scheduling; left, an entry with its id left after that; taken, its id is another entry's; held, its
         key is, and after a colon the id of that one
Cost     O(log N) an entry; the caller bounds entries and bytes
Keeps    existing entries; an id has one record and one place, a key has one waiting entry. One that waited
         behind another still does: its holder may come later. If none has come in a minute, it comes forward
]]
return change(request, function(call)
  -- Nothing is rolled back, so any step that can fail comes before the first write, that of `meta`.
  local brought = {} -- templates that came along, even with a refused entry
  for _, entry in ipairs(entries) do
    local name = name_in(entry.body)
    if name and entry.template ~= '' then brought[name] = entry.template end
    if is_fenced(call, entry.id) then return nil, 'stale' end
    local extras = extras_of_body(entry.body)
    if extras and extras.key and is_key_fenced(call, name_of_key(extras.key)) then
      return nil, 'stale'
    end
  end

  local leftovers = redis.call('EXISTS', keys.claims, keys.errors) > 0
  local is_owing = redis.call('EXISTS', keys.outbox) == 1
  local now = call.now
  local changed, here, earliest = seven_bytes(call.now_us), {}, math.huge

  -- Return why an entry's id forbids it; or nil.
  local function met(id, created)
    local own = redis.call('HGET', keys.records, id)
    local header_end = header_end_of(own)
    if header_end and created_of(own, header_end) == created then return 'here' end
    if created == '' then return own and 'taken' or nil end
    local stone = find_tombstone(id)
    -- A time in the future comes from a clock ahead of this one, and shows no order.
    local created_ms = math.floor(tonumber(created) / 1000)
    -- Even if its id has an entry again: the task may have scheduled itself anew when it ran.
    if stone and (tonumber(sub(stone, 2)) >= created_ms or created_ms > now) then return 'left' end
    return own and 'taken' or nil
  end

  local function write_extras(extras, id, member, takes_key)
    if not extras then return end
    index_extras({key = takes_key and extras.key, tags = extras.tags}, id, member)
  end

  -- The count comes before the use: if Redis stops the script half-way, it is too high, never too low.
  local function share(name)
    redis.call('HINCRBY', keys.template_uses, name, 1)
    if not here[name] then redis.call('HSET', keys.templates, name, brought[name]) end
    here[name] = true
  end

  local function load_one(entry)
    local id, created, destination, body = entry.id, entry.created, entry.destination, entry.body
    local place, claim, error = entry.place, entry.claim, entry.error
    local why = met(id, created)
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
    local size = #destination + #body + 50
    local order = six_bytes(take_numbers(1, not call.has_numbers) * 2 + (size > SMALL and 1 or 0))
    call.has_numbers = true
    local name = name_in(body)
    if name then share(name) end
    local index = sub(destination, 1, 1) == 'L' and keys.due or keys.relay
    local score = place == 'waiting' and entry.due or entry.ms
    if place ~= 'waiting' then index = is_behind and keys.behind or place == 'dead' and keys.dead or keys.refused end
    if is_behind then body = body_behind(body) end
    if place ~= 'waiting' or claim ~= '' or error ~= '' then make_untidy() end
    -- The place comes before its record, so that no record lacks one.
    redis.call('ZADD', index, score, order .. id)
    write_extras(extras, id, order .. id, entry.named == '1' and not holder and not is_behind)
    if is_behind then stand_behind(key, order .. id) end
    if leftovers then
      redis.call('HDEL', keys.claims, id)
      redis.call('HDEL', keys.errors, id)
      redis.call('ZREM', keys.dead, RECORDLESS .. id)
    end
    if claim ~= '' then redis.call('HSET', keys.claims, id, claim .. ':0:') end
    if error ~= '' then redis.call('HSET', keys.errors, id, error) end
    redis.call('HSET', keys.records, id, record_of(destination, order, entry.due, created, changed, body))
    -- It is no longer revoked.
    if is_owing then
      redis.call('HDEL', keys.outbox_messages, id)
      redis.call('ZREM', keys.outbox, id)
    end
    if place ~= 'dead' then earliest = math.min(earliest, tonumber(score)) end
    return 'loaded'
  end

  local told, wrote = {}, false
  for _, entry in ipairs(entries) do
    told[#told + 1] = load_one(entry)
    wrote = wrote or told[#told] == 'loaded'
  end
  if earliest < math.huge then wake_for(earliest, now, call.promise) end
  -- Nothing was written, so nothing is refused for want of memory.
  if not wrote then allow_when_full(keys.templates) end
  return table.concat(told, ' ')
end)
