--[[ Conflicts: a new entry meets one with its id, or others under its key. They are found; it is decided who stays; and
those that give way go. See schedule.lua.

found  of each: id, record, header_end, member, place, score, there, claim, as in entry.lua; extras, key, hold, see
       extras.lua; and
       state  waiting     in any place, or its lease ran out
              leased      it is being published
              dead        a dead letter
              unreadable  it cannot be read, and has nothing but its id
              busy        it holds its key, and runs or may run: it has left, or is leaving
       due, created       ms, and us as 16 digits; not of a busy one

The functions share `step`, as in schedule.lua, and have their own notes there: owed (id -> its row for the caller), asked
and met (keys that were looked at, and the entries found there), and templates in cache.
]]

-- Rare: most entries meet none.

-- Find an existing entry; or return nil.
local function find_entry(step, id)
  local record = redis.call('HGET', keys.records, id)
  if not record then return nil end
  step.bytes = step.bytes + #record
  local header_end = header_end_of(record)
  local entry = {id = id, record = record, header_end = header_end, state = 'unreadable'}
  if not header_end then return entry end
  entry.member = member_of(record, header_end, id)
  entry.due, entry.created = due_of(record, header_end), created_of(record, header_end)
  entry.place, entry.score, entry.there = place_of(entry.member, record, header_end)
  entry.claim = (entry.place ~= keys.due or step.leftovers) and parse_claim(redis.call('HGET', keys.claims, id))
  if entry.place == keys.leased then
    entry.state = tonumber(entry.score) > step.call.now and 'leased' or 'waiting'
    entry.claim.attempts, entry.claim.uncertain = entry.claim.attempts + 1, true
  else
    entry.state = is_dead(entry.place) and 'dead' or 'waiting'
  end
  if ends_in_extras(record, header_end) then
    entry.extras = extras_of(record, header_end)
    entry.key, entry.hold = entry.extras.key or nil, entry.extras.hold
  end
  return entry
end

-- Whether the running task may be a copy of this entry. An entry still in the store is another task.
local function may_be_delivered(entry)
  return entry.header_end and (not entry.place or entry.claim and entry.claim.uncertain)
end

-- Find what has a key: the entry that waits with it, or who is busy with it; or nil. And find the entry that is behind
-- that one, if its id is another one, and whether any is. `id`: of the new entry; `caller`: the entry that delivered the
-- calling run, which schedules this one, and holds its key like another one.
local function find_under(step, key, id, caller)
  local holder, delivery, member = holder_of(key)
  local found = nil
  if holder == id and not delivery then
    if caller and caller.key == key and caller.hold then found = {id = id, state = 'busy'} end
    if not found then
      -- It stays behind the new entry; but if it came later than the request, that comes too late.
      if member then step.met[key] = find_entry(step, id_of(member)) end
      return nil
    end
  elseif delivery then
    found = is_key_held(key, step.call.now) and {id = holder, state = 'busy'} or nil
    if found then found.ends = redis.call('ZSCORE', keys.held, key) end
  elseif holder then
    local entry = find_entry(step, holder)
    local may_run = entry and (entry.place == keys.leased or entry.claim and entry.claim.uncertain)
    if not entry or entry.key ~= key then
      -- Another program's row.
    elseif entry.hold and entry.state ~= 'dead' and may_run then
      entry.state, found = 'busy', entry
    elseif entry.state == 'waiting' and entry.place ~= keys.leased then
      found = entry
    end
    step.met[key] = entry
  end
  local behind = member and id_of(member) ~= id and find_entry(step, id_of(member)) or nil
  if behind and behind.state ~= 'waiting' then behind = nil end
  return found, behind, member ~= nil
end

-- Decide who stays, by facts alone. `when`: the due time of the new entry, ms; `own`: the entry with its id, unless that
-- gives way in any case; `holder`: what has its key; `behind`: the entry behind that, and `any_behind`: whether any is.
-- Return
--   waits, behind               it is written, to wait for its due time, or for the holder; and what gives way under its
--                               key. `own` gives way as well.
--   kept                        and what stays
--   scheduled | dead | leased   it is refused: that is what has its id, or, scheduled, its key
--   held                        it is refused: so it is with its key. And what has that, in both cases
local function decide(policy, when, own, holder, behind, any_behind)
  local there = holder or behind
  if policy == 'reject' and own or own and own.state == 'unreadable' then
    return own.state == 'dead' and 'dead' or 'scheduled'
  end
  if policy == 'reject' and there then return there.state == 'busy' and 'held' or 'scheduled', there end
  if own and own.state == 'leased' then
    if policy == 'keep' or policy == 'earliest' then return 'kept', own end
    return 'leased'
  end
  local goes_behind = holder and (holder.state == 'busy' or any_behind) and policy ~= 'keep'
  if goes_behind then there = behind end
  local function stays(one)
    return one and one.state ~= 'dead' and (policy == 'keep'
      or policy == 'earliest' and one.due <= when or policy == 'latest' and one.due >= when)
  end
  if stays(there) then return 'kept', there end
  if stays(own) then return 'kept', own end
  return goes_behind and 'behind' or 'waits', there
end

-- When an entry counts as scheduled, us, that takes the place of another: as that one, if it puts that off, or if the key
-- is held for a time from then on.
local function created_in_place_of(one, policy, created)
  if not one or one.state == 'dead' then return created end
  local is_as_old = policy == 'debounce' or string.find(one.hold or '', '^w')
  return is_as_old and one.created < created and one.created or created
end

-- Whether an entry, in any place, was changed after the request was made.
local function is_newer(step, entry)
  return entry and entry.header_end and is_overtaken(step.call, changed_of(entry.record, entry.header_end))
end

-- Whether something under a key is newer than this request; changes by this very call do not count.
local function is_late_under(step, key, behind)
  if step.asked[key] then return false end
  if is_key_fenced(step.call, name_of_key(key)) then return true end
  step.asked[key] = not (is_newer(step, step.met[key]) or is_newer(step, behind))
  return not step.asked[key]
end

-- REVOKED must be stored for a task. Tell the caller, and the outbox in case the caller cannot store it.
local function owe_one(step, id, how, message, why)
  step.owed[id] = {id, how, whole(step.call.now_us), message, why}
  if step.revokes ~= 'none' then owe(step.call, id, how, message, why) end
end

-- Keep an existing entry instead of the new one. If one with the same id stays, there is no other task to revoke. Return
-- the answer.
local function keep(step, one, new, when, own)
  if new.key then fence(step.call, name_of_key(new.key)) end
  if step.revokes == 'all' and not own and one.id ~= new.id then
    local name, cache = name_in(new.body), step.cache
    if name and step.brought[name] then cache[name] = split_lines(step.brought[name]) end
    local now_us = seven_bytes(step.call.now_us)
    local record = record_of(new.header, six_bytes(0), whole(when), step.created, now_us, new.body)
    local message = whole_message(record, #new.header, new.id, cache) or ''
    -- Another entry of this call may have replaced one with this id, of which a copy may have been delivered.
    local owed = step.owed[new.id]
    owe_one(step, new.id, owed and owed[2] or 'c', message, 'kept ' .. one.id)
  end
  return 'kept:' .. whole(one.due or step.call.now) .. quoted(one.id)
end

-- Remove an existing entry that gives way. With the new entry's id nothing is owed: the id has a new task, which keeps
-- the claim if that `lasts`; and if `runs`, its run holds its key on.
local function displace(step, entry, new, lasts, runs)
  local leaving = {
    ids = {entry.id}, place = entry.place, members = {entry.there},
    claimed = entry.claim and not lasts, failed = step.leftovers,
    shared = {}, kept_key = entry.id == new.id and new.key,
  }
  local name = template_of(entry.record, entry.header_end)
  if name then leaving.shared[name] = 1 end
  -- It may be the last to share its template, which another entry of this call may need.
  if name and name ~= name_in(new.body) then step.here[name] = nil end
  if past.kept or entry.extras then
    note_extras(leaving, entry.id, entry.member, entry.record, entry.header_end, entry.extras)
  end
  if entry.id == new.id then
    -- No record has this change of a key that it gives up: an older request under that key must not follow.
    for _, one in ipairs(leaving.keyed or {}) do
      if one.key ~= new.key then fence(step.call, name_of_key(one.key)) end
    end
    if runs and leaving.keyed then hold_on(leaving.keyed, 'h', step.call.now) end
    return depart(leaving, nil, step.call.now)
  end
  local how = entry.claim and entry.claim.uncertain and 'u' or 'c'
  local message = step.tells and whole_message(entry.record, entry.header_end, entry.id, step.cache) or ''
  owe_one(step, entry.id, how, message, 'replaced by ' .. new.id)
  leaving.is_replaced = true
  fence(step.call, entry.id)
  depart(leaving, how, step.call.now)
end

-- A run that goes on takes its key along, or goes on without it if that was lost: to another task, or to another delivery
-- of its own id, as its second copy has ended and was followed by that.
local function take_along(new, run)
  local holder = other_holder(new.key, new.id)
  if holder and (holder ~= new.id or select(2, holder_of(new.key)) ~= run) then
    new.body = without_key(new.body, 1 - FLAGS)
    new.extras, new.key = extras_of_body(new.body), nil
  end
end

-- Schedule a new entry that meets others, or may; the last of three steps, after find_entry and decide. Return the answer.
local function contend(step, new, entry, supersede, is_there)
  if not step.owed then step.owed, step.asked, step.met, step.cache = {}, {}, {}, {} end
  local policy, goes_on = entry.conflict, entry.run ~= '' and new.key
  if goes_on then take_along(new, entry.run) end
  local own = is_there and find_entry(step, new.id) or nil
  local is_caller = own and supersede and may_be_delivered(own)
  local runs = is_caller and not goes_on and own.state ~= 'dead'
  if own and own.key ~= new.key then own.hold = nil end
  local rival = not is_caller and own or nil
  local holder, behind, any_behind
  -- What is refused anyhow needs no look under its key.
  if new.key and not goes_on and not (rival and policy == 'reject') then
    holder, behind, any_behind = find_under(step, new.key, new.id, runs and own)
  end
  local outcome, other = decide(policy, new.when, rival, holder, behind, any_behind)
  if outcome == 'scheduled' or outcome == 'held' or outcome == 'dead' then
    return outcome .. (other and quoted(other.id) or '') .. (other and other.ends and ':' .. other.ends or '')
  end
  if is_newer(step, rival) or new.key and is_late_under(step, new.key, behind) then return 'again' end
  if outcome == 'leased' then return outcome end
  if outcome == 'kept' then return keep(step, other, new, new.when, rival) end

  new.created = created_in_place_of(other, policy, created_in_place_of(rival, policy, new.created))
  if policy == 'debounce' and entry.max_wait ~= '' and (other or rival) then
    new.when = math.min(new.when, due_in_ms(tonumber(new.created) + entry.max_wait * 1000, step.call.now_us))
  end
  -- Another copy of the running task may have freed the key.
  if own then own.is_caller, own.runs = is_caller, runs and not (own.hold and outcome ~= 'behind') end
  return write_entry(step, new, outcome == 'behind', own, other)
end
