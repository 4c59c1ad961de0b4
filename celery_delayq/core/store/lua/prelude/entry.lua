--[[ One entry, its place, and its moves between places.

place   due, relay (waits for its due time), refused (waits for its next try), parked (fell due during a pause), leased,
        behind (another one holds its key), dead. Lists of places have `parked` under its name, as its members are longer:
        lane, due time in 7 bytes, kind, and then the member.
tidy    a note in `meta`, by which other keys need no look: w, while each entry waits in the index of its kind and no
        attempt is known; u, while nothing is paused. hand_over sets it from time to time; any step that changes this
        removes it first
lane    a scope of pauses, 7 bytes: '*' and six more; 'q' or 't' and the label of the queue or task
kind    L or R, as in the record; in lower case if it has a late policy
        A lane of 'f', a format and '-----' has what a scanner met that was older than that; it is in no pause
]]
local EVERYTHING = '*******' -- the lane of all entries
local LATE_POLICY = 4 -- flag
local RUN_NOW = 8 -- flag: ignores pauses

-- The first place, of all or of some, that has an entry; the text of its score, and its member there; or nil. In
-- `parked` is looked last.
local function place_of(member, record, header_end, places)
  places = places or {keys.due, keys.relay, keys.leased, keys.dead, keys.refused, keys.behind}
  for _, index in ipairs(places) do
    local score = redis.call('ZSCORE', index, member)
    if score then return index, score, member end
  end
  if not header_end or redis.call('ZCARD', keys.parked) == 0 then return end
  for _, lane in ipairs(lanes_of(record, header_end)) do
    local there = parked_as(lane, record, header_end, member)
    local score = redis.call('ZSCORE', keys.parked, there)
    if score then return keys.parked, score, there end
  end
end

-- Put an entry back to wait in `index` until `due`, out of its place. The new place comes before the old one goes: if
-- Redis stops the script half-way, the entry must not be lost.
local function put_back(index, due, place, member, claim, there)
  if claim then end_claim(id_of(member), claim) end
  redis.call('ZADD', index, due, member)
  if place and place ~= index then redis.call('ZREM', place, there or member) end
end

-- Free keys that are held no more, at most `limit`. Look again later at those of entries that have not left, if one waits
-- behind these. Return the bytes read.
local function free_ended(now, limit, max_bytes)
  local bytes = 0
  for _, key in ipairs(redis.call('ZRANGEBYSCORE', keys.held, '-inf', whole(now), 'LIMIT', 0, limit)) do
    if bytes >= max_bytes then break end
    local _, delivery, behind = holder_of(key)
    if behind and other_holder(key, id_of(behind)) then
      redis.call('ZADD', keys.held, whole(now + LOOK), key)
    elseif behind or delivery then
      bytes = bytes + free_key(key, behind)
    else
      redis.call('ZREM', keys.held, key)
    end
  end
  return bytes
end

-- An entry comes back to wait: give it its key again. If another one holds that, its record loses the key: it would wait
-- without it even once that is free. It is no change of its owner's. Return the record.
local function take_key(record, header_end, id)
  local key = has_flag(record, header_end, KEYED) and extras_of(record, header_end).key
  if not key then return record end
  if not other_holder(key, id) then
    redis.call('HSET', keys.holders, key, id)
    return record
  end
  local keyless = without_key(record, header_end)
  redis.call('HSET', keys.records, id, keyless)
  return keyless
end

-- Parse a target: 'i' and an id, 'k' and a key, or 'm' and a member. Return the id, if there is one, the name for its
-- fence and tombstone, and the required member, if any.
local function meant_by(target)
  local kind, text = sub(target, 1, 1), sub(target, 2)
  if kind == 'k' then
    local id, delivery, behind = holder_of(text)
    -- If it has left, its id may have another entry by now.
    return behind and id_of(behind) or not delivery and id or nil, name_of_key(text)
  end
  if kind == 'm' then return id_of(text), id_of(text), text end
  return text, text
end

-- Return an entry that can still be changed; or nil, the answer that says why not, and an entry in flight. Any step that
-- can fail here comes before the first write: nothing is rolled back. The entry has
--   id, record, header_end, member
--   place, score, there   its place, and its score and member there
--   claim                 the part that outlives a change: uncertain attempts
--   failed                whether an error of an earlier attempt is known
local function entry_of(id, name, call)
  local record = id and redis.call('HGET', keys.records, id)
  if not record then
    return nil, was_handed_over(name) and 'handed_over' or 'not_found'
  end
  local header_end, defect = header_end_of(record)
  if not header_end then return nil, 'unreadable ' .. defect end
  local entry = {id = id, record = record, header_end = header_end, member = member_of(record, header_end, id)}
  if call.all_wait then
    entry.place, entry.score, entry.there = index_of(record), whole(due_of(record, header_end)), entry.member
    return entry
  end
  entry.place, entry.score, entry.there = place_of(entry.member, record, header_end)
  entry.failed = redis.call('HEXISTS', keys.errors, id) == 1
  if entry.place == keys.leased and tonumber(entry.score) > call.now then
    return nil, 'in_flight', entry
  end
  local text = redis.call('HGET', keys.claims, id)
  local claim = (text or entry.place == keys.leased) and parse_claim(text)
  if entry.place == keys.leased or not entry.place and claim and claim.token ~= '' then
    -- A lease that ran out, or was lost, is an attempt with an unknown outcome.
    claim.attempts, claim.uncertain = claim.attempts + 1, true
  elseif claim and not claim.uncertain then
    claim.attempts = 0
  end
  if claim then claim.refusals = 0 end
  entry.claim = claim
  return entry
end

-- Whether a request was made before the last change of its entry, or, by key, before the last change under that: an
-- entry that comes back gets the key, and may have been changed before.
local function is_late_for(call, entry, name)
  if is_overtaken(call, changed_of(entry.record, entry.header_end)) then return true end
  return name ~= entry.id and is_key_fenced(call, name)
end

-- To be called before an entry leaves the index of its kind, is paused, or is tried.
local function make_untidy()
  redis.call('HDEL', keys.meta, 'tidy')
end

-- The lanes that an entry may be in.
local function lanes_of(record, header_end)
  local lanes = {EVERYTHING, 'q' .. queue_of(record, header_end), 't' .. task_of(record, header_end)}
  if sub(record, 1, 1) ~= FIRST then lanes[4] = format_lane(record) end
  return lanes
end

-- Whether a due member is the remains of a script that Redis stopped half-way: its entry has left, or is elsewhere. With
-- neither record nor tombstone, the record was lost instead.
local function is_leftover(member, record, header_end)
  if not record then return find_tombstone(id_of(member)) end
  local own = header_end and member_of(record, header_end, id_of(member)) or member
  return own ~= member and place_of(own, record, header_end)
end

-- When to look at the keys of entries in `behind`, ms, or -1.
local function next_look()
  return redis.call('EXISTS', keys.behind) == 1 and head_of(keys.held) or -1
end

-- Rare: most entries just wait in the index of their kind.

-- The lane in which records of a format are laid aside.
local function format_lane(record)
  return 'f' .. sub(record, 1, 1) .. '-----'
end

-- An entry's member of `parked` in a lane.
local function parked_as(lane, record, header_end, member)
  local kind = sub(record, 2, 2)
  if has_flag(record, header_end, LATE_POLICY) then kind = string.lower(kind) end
  return lane .. seven_bytes(due_of(record, header_end)) .. kind .. member
end

local function parked_lane(there)
  return sub(there, 1, 7)
end

-- Its due time, ms.
local function parked_due(there)
  return number_in(there, 8, 14)
end

local function parked_kind(there)
  return sub(there, 15, 15)
end

-- Its member in the other places.
local function parked_member(there)
  return sub(there, 16)
end

-- The note `tidy`, as the store is now.
local function tidiness()
  local others = redis.call('EXISTS', keys.parked, keys.leased, keys.refused, keys.dead, keys.claims, keys.errors)
  local waiting = redis.call('ZCARD', keys.due) + redis.call('ZCARD', keys.relay)
  local all_wait = others == 0 and waiting == redis.call('HLEN', keys.records)
  return (all_wait and 'w' or '') .. (redis.call('EXISTS', keys.paused) == 0 and 'u' or '')
end

-- The id of another entry that holds a key: it waits, or has left and holds on; or nil. A leased or dead one may be named
-- there, but holds it only if it was to hold longer, and is not dead. One that has left is another one, even with this id.
-- And the place of one that has not left.
local function other_holder(key, id)
  local holder, delivery = holder_of(key)
  if delivery then return is_key_held(key, math.floor(clock_us() / 1000)) and holder or nil end
  if not holder or holder == id then return nil end
  local other = redis.call('HGET', keys.records, holder)
  local its_end = header_end_of(other)
  local extras = its_end and extras_of(other, its_end)
  if extras and extras.key == key then
    local place = place_of(member_of(other, its_end, holder), other, its_end)
    if place and place ~= keys.dead and (extras.hold or place ~= keys.leased) then return holder, place end
  end
end

-- How a key is held: `left` (its entry has left), `waits` or `in_flight`; or nil. And its id; and of one that has left, its
-- delivery, and the end, ms.
local function hold_on_key(key)
  local id, place = other_holder(key, '')
  if not id then return nil end
  if place then return place == keys.leased and 'in_flight' or 'waits', id end
  return 'left', id, select(2, holder_of(key)), tonumber(redis.call('ZSCORE', keys.held, key))
end

-- An entry comes back to wait, with its key or without it: see take_key. Return the index of its kind, the text of its
-- due time (now, if its record cannot be read), and the bytes read for that.
local function welcome(member, now)
  local id = id_of(member)
  local record = redis.call('HGET', keys.records, id)
  local header_end = header_end_of(record)
  local index = record and index_of(record) or keys.relay
  if not header_end then return index, whole(now), #(record or '') end
  take_key(record, header_end, id)
  return index, whole(due_of(record, header_end)), #record
end

-- A lease ran out; whether its entry was published is not known. Return its due time, and the bytes read.
local function take_back(member, claim, now)
  claim.attempts, claim.uncertain = claim.attempts + 1, true
  local index, due, read = welcome(member, now)
  put_back(index, due, keys.leased, member, claim)
  return due, read
end

-- Put refused entries with a due next try back to wait under their own due time. Return the bytes read.
local function retry_refused(now, limit, max_bytes)
  local bytes = 0
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', keys.refused, '-inf', whole(now), 'LIMIT', 0, limit)) do
    if bytes >= max_bytes then break end
    local index, due, read = welcome(member, now)
    put_back(index, due, keys.refused, member)
    bytes = bytes + read
  end
  return bytes
end

-- An entry cannot be delivered, so it becomes a dead letter; its record and its claim stay.
local function bury(now, member, reason)
  if reason == NO_RECORD then member = RECORDLESS .. id_of(member) end
  local id = id_of(member)
  make_untidy()
  redis.call('HSET', keys.errors, id, reason)
  redis.call('ZADD', keys.dead, whole(now), member)
  if past.kept == nil then begin_history(redis.pcall('HGET', keys.meta, 'history')) end
  if not past.kept then return end
  local record = redis.call('HGET', keys.records, id)
  local header_end = header_end_of(record)
  local extras = header_end and extras_of(record, header_end)
  note_event('d', now, header_end and told_by(record, header_end, id, extras and extras.key) or told_of(nil, id))
end
