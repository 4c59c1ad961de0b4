--[[ repair: mend findings of `check` that still exist.

rows...     findings  of each, not those of counts:
         kind   the inconsistency
         part   the key where it was found
         field  and the field or member of that

Returns  a word for each: gone (it no longer exists, and nothing was changed) | done | back (the entry waits again) |
         late (it does, but is too late and will be skipped) | lost (its place was removed) |
         dead and a blank and the reason
Cost     O(log N) a finding
Keeps    consistent data, and changes by other steps: this one step looks at everything again, as `check` does
]]
local LEFT = 'it had lost its place, and may have left'
local kinds = {} -- inconsistencies of the field being looked at: kind -> true
local look = inconsistencies.look(function(kind) kinds[kind] = true end, function() end)
local now, earliest = look.now, math.huge

local promise = promise_of()
begin_history(redis.call('HGET', keys.meta, 'history'))
make_untidy()

-- Whether an existing entry has left as well: its tombstone is as young as its last change.
local function has_left(id, record, header_end)
  local stone = find_tombstone(id)
  local left = stone and tonumber(string.match(stone, '^.(%d%d%d%d%d%d%d%d%d%d%d%d%d)'))
  return left and left >= math.floor(changed_of(record, header_end) / 1000)
end

-- Return the place for an entry that has none, and its score there, or why it is dead; and its claim, if that changes.
-- No script leaves an entry so, even if Redis stops it: a whole index was lost, or a member of one. An entry in `leased`
-- may have been published since, or may be right now: let that continue until its lease ends. One with an error may have
-- been dead, and one with a tombstone may have left: only a person should deliver those. One due to be published,
-- without a known attempt, may have lost its claim along with its lease.
local function place_for(id, record, header_end)
  local text = redis.call('HGET', keys.claims, id)
  local claim, is_relayed = parse_claim(text), sub(record, 2, 2) == 'R'
  if claim.token ~= '' then
    local since = tonumber(string.match(claim.token, ':(%d+)$') or 0)
    return keys.leased, math.min(math.floor(since / 1000), now) + claim.lease_ms
  end
  local left, due_ms = has_left(id, record, header_end), due_of(record, header_end)
  local is_marked = is_relayed and not claim.uncertain and (left or not text and due_ms <= now)
  if is_marked then claim.attempts, claim.uncertain = claim.attempts + 1, true end
  local reason = left and LEFT or redis.call('HGET', keys.errors, id)
  if reason then return keys.dead, reason, is_marked and claim end
  return is_relayed and keys.relay or keys.due, due_ms, is_marked and claim
end

local function give_place(id, record, header_end, member)
  local place, score, claim = place_for(id, record, header_end)
  if claim then redis.call('HSET', keys.claims, id, format_claim(claim)) end
  if place == keys.dead then
    bury(now, member, score)
    return 'dead ' .. score
  end
  redis.call('ZADD', place, whole(score), member)
  earliest = math.min(earliest, score)
  if place == keys.leased then return 'done' end
  record = take_key(record, header_end, id)
  if past.kept then
    local extras = extras_of(record, header_end)
    note_event('b', now, told_by(record, header_end, id, extras and extras.key))
  end
  -- Earlier pauses that held it back are not known here, and excuse nothing.
  local lanes = new_lanes(clock_us())
  local is_late = too_late_by(lanes, record, header_end) and not is_held(lanes, record, header_end)
  return is_late and 'late' or 'back'
end

-- All places of an entry, the one that it keeps first. Under a lease a scanner may be publishing it. Waiting places go
-- before those of failures, as when Redis stops a script that moves an entry.
local function places_of(id, record, header_end, member)
  local found = {}
  local function add(place, there)
    if redis.call('ZSCORE', place, there) then found[#found + 1] = {place, there} end
  end
  local has_claim = parse_claim(redis.call('HGET', keys.claims, id)).token ~= ''
  local is_relayed = sub(record, 2, 2) == 'R'
  if has_claim then add(keys.leased, member) end
  add(is_relayed and keys.relay or keys.due, member)
  add(is_relayed and keys.due or keys.relay, member)
  add(keys.refused, member)
  add(keys.behind, member)
  for _, lane in ipairs(lanes_of(record, header_end)) do
    add(keys.parked, parked_as(lane, record, header_end, member))
  end
  if not has_claim then add(keys.leased, member) end
  add(keys.dead, member)
  return found
end

local mends = {}

local function unpark_it(there)
  local lane, id = parked_lane(there), id_of(parked_member(there))
  local record = redis.call('HGET', keys.records, id)
  excuse(id, record, header_end_of(record), now)
  -- The lane is not coming back: its old pause would hold up entries that come back without it.
  if parse_pause(redis.call('HGET', keys.paused, lane)) then redis.call('HDEL', keys.paused, lane) end
  earliest = math.min(earliest, unpark_one(there))
end

function mends.record_without_place(part, id)
  if part == 'parked' then return unpark_it(id) end
  local record = redis.call('HGET', keys.records, id)
  local header_end = header_end_of(record)
  return give_place(id, record, header_end, member_of(record, header_end, id))
end

function mends.place_without_record(part, there)
  redis.call('ZREM', keys[part], there)
  local id = id_of(part == 'parked' and parked_member(there) or there)
  if part == 'dead' then return redis.call('HDEL', keys.errors, id) and 'done' end
  return find_tombstone(id) and 'done' or 'lost'
end

-- The place to keep is written before another one is removed.
function mends.second_place(part, there)
  local id = id_of(part == 'parked' and parked_member(there) or there)
  local record = redis.call('HGET', keys.records, id)
  local header_end = header_end_of(record)
  local member = member_of(record, header_end, id)
  local found = places_of(id, record, header_end, member)
  local word = #found == 0 and give_place(id, record, header_end, member) or 'done'
  for at = 2, #found do redis.call('ZREM', found[at][1], found[at][2]) end
  local is_kept = found[1] and found[1][1] == keys[part] and found[1][2] == there
  if not is_kept then redis.call('ZREM', keys[part], there) end
  return word
end

function mends.leftover(part, id) redis.call('HDEL', keys[part], id) end

function mends.wrong_key(part, field)
  if part == 'holders' then return redis.call('HDEL', keys.holders, field) and 'done' end
  local record = redis.call('HGET', keys.records, field)
  local header_end = header_end_of(record)
  local member = member_of(record, header_end, field)
  if not redis.call('ZSCORE', keys.behind, member) then
    take_key(record, header_end, field)
    return
  end
  local key = (extras_of(record, header_end) or {}).key
  local second = key and select(3, holder_of(key))
  if not key or second and second ~= member and redis.call('ZSCORE', keys.behind, second) then
    -- There is no room behind that key: it waits without it.
    if key then redis.call('HSET', keys.records, field, without_key(record, header_end)) end
    redis.call('ZADD', index_of(record), due_text(record, header_end), member)
    redis.call('ZREM', keys.behind, member)
    earliest = now
  else
    -- The next scanner looks whether another one holds it.
    redis.call('HSET', keys.holders, name_of_key(key), member)
    redis.call('ZADD', keys.held, 'NX', whole(now), key)
    earliest = now
  end
end

function mends.wrong_tag(part, field)
  if part == 'tags' then return redis.call('ZREM', keys.tags, field) and 'done' end
  local extras, member = inconsistencies.extras_at(field, look)
  for _, tag in ipairs(extras.tags) do redis.call('ZADD', keys.tags, 0, tag .. '\0' .. member) end
end

-- A new task under its id is no longer revoked.
function mends.owed_revoked(part, id)
  if part == 'outbox' then
    redis.call('ZREM', keys.outbox, id)
  elseif redis.call('HEXISTS', keys.records, id) == 1
    or not parse_owed(redis.call('HGET', keys.outbox_messages, id)) then
    redis.call('HDEL', keys.outbox_messages, id)
  else
    redis.call('ZADD', keys.outbox, whole(now), id)
  end
end

-- Above all numbers given, as if `seq` were lost; and not below that of the record which shows that it is too low.
function mends.number_too_low(part, field)
  local record = part == 'records' and redis.call('HGET', keys.records, field)
  local serial = record and serial_of(member_of(record, header_end_of(record), field)) or 0
  look.seq = math.max(numbers_anew(), serial)
  redis.call('HSET', keys.meta, 'seq', whole(look.seq))
end

local IN_HASH = {
  records = true, holders = true, claims = true, errors = true, outbox_messages = true, meta = true,
}
local words = {}
for _, one in ipairs(findings) do
  local kind, part, field = one.kind, one.part, one.field
  local value = redis.call(IN_HASH[part] and 'HGET' or 'ZSCORE', keys[part], field)
  kinds = {}
  if value then inconsistencies.at(part, field, value, look) end
  words[#words + 1] = kinds[kind] and (mends[kind](part, field) or 'done') or 'gone'
end
if earliest < math.huge then wake_for(earliest, now, promise) end
if past.kept then write_history() end
return words
