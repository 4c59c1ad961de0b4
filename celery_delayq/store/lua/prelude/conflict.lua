--[[ Conflicts: a new entry meets one that has its id, or waits under its key.

The functions share `step`: the call; owes, here and brought, as in schedule.lua; and their own notes: bytes read, owed
(id -> its row for the caller), asked, templates in cache.
]]
-- Return an existing entry: `state` is waiting, leased, dead, or nil if it cannot be read.
local function present(step, id)
  local record = redis.call('HGET', keys.records, id)
  if not record then return nil end
  step.bytes = step.bytes + #record
  local header_end = header_end_of(record)
  local entry = {id = id, record = record, header_end = header_end}
  if not header_end then return entry end
  entry.member = member_of(record, header_end, id)
  entry.place, entry.score, entry.there = place_of(PLACES, entry.member, record, header_end)
  entry.claim = (entry.place ~= keys.due or step.leftovers) and parse_claim(redis.call('HGET', keys.claims, id))
  if entry.place == keys.leased then
    entry.state = tonumber(entry.score) > step.call.now and 'leased' or 'waiting'
    entry.claim.attempts, entry.claim.uncertain = entry.claim.attempts + 1, true
  else
    entry.state = (entry.place == keys.dead or not entry.place) and 'dead' or 'waiting'
  end
  return entry
end

-- Whether the running task may be a copy of this entry. An entry still in the store is another task.
local function may_be_delivered(entry)
  return entry.header_end and (not entry.place or entry.claim and entry.claim.uncertain)
end

-- Whether an entry, in any place, was changed after the request was made.
local function is_newer(step, entry)
  return entry.header_end and is_overtaken(step.call, changed_of(entry.record, entry.header_end))
end

-- Return the entry, in any place, that has a key, if its id is another one; or nil. One that still holds it, and runs or
-- may run, is `busy`; if it has left, it is nothing else. And return the member of the one behind it. `running`: the
-- entry with this id that may be running, and schedules this one; it holds its key like another one.
local function named_by(step, key, id, running)
  local holder, delivery, behind = holder_of(key)
  if holder == id and not delivery then
    if not running or not running.hold then return nil end
    return {id = id, busy = true}, behind
  end
  local entry = holder and not delivery and holder ~= id and present(step, holder)
  local extras = entry and entry.header_end and extras_of(entry.record, entry.header_end)
  if extras and extras.key == key then
    entry.hold = extras.hold
    local may_run = entry.place == keys.leased or entry.claim and entry.claim.uncertain
    entry.busy = entry.hold and entry.state ~= 'dead' and may_run
    return entry, behind
  end
  return delivery and is_key_held(key, step.call.now) and {id = holder, busy = true} or nil, behind
end

-- Return the entry that is behind another one, by its member, if its id is not this one; or nil.
local function behind_another(step, member, id)
  local entry = id_of(member) ~= id and present(step, id_of(member))
  return entry and entry.state == 'waiting' and entry or nil
end

-- Whether something under a key is newer than this request; changes by this very call do not count.
local function is_late_under(step, key, named, second)
  if step.asked[key] then return false end
  if is_key_fenced(step.call, name_of_key(key)) then return true end
  step.asked[key] = not (named and is_newer(step, named) or second and is_newer(step, second))
  return not step.asked[key]
end

-- REVOKED must be stored for a task. Tell the caller, and the outbox in case the caller cannot store it.
local function owe_one(step, id, how, message, why)
  step.owed[id] = {id, how, whole(step.call.now_us), message, why}
  if step.owes > 0 then owe(step.call, id, how, message, why) end
end

-- Keep the existing entry instead of the new one. With `own`, an entry of the same id, there is no other task to revoke.
local function keep(step, entry, new, when, own)
  if new.key then fence(step.call, name_of_key(new.key)) end
  if step.owes == 2 and not own and entry.id ~= new.id then
    local name, cache = name_in(new.body), step.cache
    if name and step.brought[name] then cache[name] = split_lines(step.brought[name]) end
    local now_us = seven_bytes(step.call.now_us)
    local record = record_of(new.destination, six_bytes(0), whole(when), step.created, now_us, new.body)
    local header_end = #new.destination + 1
    local line = lines_for(record, header_end, cache)
    local message = line ~= nil and message_of(record, header_end, new.id, line) or ''
    -- Another entry of this call may have replaced one with this id, of which a copy may have been delivered.
    local owed = step.owed[new.id]
    owe_one(step, new.id, owed and owed[2] or 'c', message, 'kept ' .. entry.id)
  end
  local due = entry.record and due_of(entry.record, entry.header_end) or step.call.now
  return 'k' .. whole(due) .. quoted(entry.id)
end

-- Apply the policy to the existing entries: return an answer; or nil, if they give way to the new entry, its due time,
-- and its time of scheduling.
local function resolve(step, ways, own, new, when, conflict)
  local created = step.created
  local policy, max_wait = string.match(conflict, '^(%l+) ?(%d*)$')
  if own and own.state == 'leased' then
    if policy ~= 'keep' and policy ~= 'earliest' then return '-3' end
    return keep(step, own, new, when, own)
  end
  for _, entry in ipairs(ways) do
    local its_due = not entry.busy and due_of(entry.record, entry.header_end)
    if entry.state == 'dead' then
      -- It gives way.
    elseif policy == 'keep' or (policy == 'earliest' and its_due <= when) or (policy == 'latest' and its_due >= when) then
      return keep(step, entry, new, when, own)
    elseif policy == 'debounce' or string.find(entry.hold or '', '^w') then
      local since = created_of(entry.record, entry.header_end)
      if since < created then created = since end
    end
  end
  if policy == 'debounce' and max_wait ~= '' then
    when = math.min(when, due_in_ms(tonumber(created) + tonumber(max_wait) * 1000, step.call.now_us))
  end
  return nil, when, created
end

-- Remove an existing entry that gives way. With the new entry's id nothing is owed: the id has a new task, which keeps
-- the claim if that `lasts`.
local function displace(step, entry, new)
  local leaving = {
    ids = {entry.id}, place = entry.place, members = {entry.there},
    claimed = entry.claim and not entry.lasts, failed = step.leftovers,
    shared = {}, kept_key = entry.id == new.id and new.key,
  }
  local name = template_of(entry.record, entry.header_end)
  if name then leaving.shared[name] = 1 end
  -- It may be the last to share its template, which another entry of this call may need.
  if name and name ~= name_in(new.body) then step.here[name] = nil end
  note_extras(leaving, entry.id, entry.member, entry.record, entry.header_end)
  if entry.id == new.id then
    -- No record has this change of a key that it gives up: an older request under that key must not follow.
    for _, one in ipairs(leaving.keyed or {}) do
      if one.key ~= new.key then fence(step.call, name_of_key(one.key)) end
    end
    if entry.runs and leaving.keyed then hold_on(leaving.keyed, 'h', step.call.now) end
    return depart(leaving, nil, step.call.now)
  end
  local how = entry.claim and entry.claim.uncertain and 'u' or 'c'
  local line = lines_for(entry.record, entry.header_end, step.cache)
  local message = line ~= nil and message_of(entry.record, entry.header_end, entry.id, line) or ''
  owe_one(step, entry.id, how, message, 'replaced by ' .. new.id)
  leaving.what = past.REPLACED
  fence(step.call, entry.id)
  depart(leaving, how, step.call.now)
end
