--[[ A new entry is written. See schedule.lua, for the step and the new entry that the functions get. ]]

-- Count a use of a template before it is made; the first time, count all that may follow. If Redis stops the script
-- half-way, the count must not be too low.
local function count_use(step, name, most)
  if not step.sharing[name] then
    redis.call('HINCRBY', keys.template_uses, name, most)
    step.sharing[name] = most
  end
  step.sharing[name] = step.sharing[name] - 1
end

local function next_order(step, size)
  step.seq = (step.seq or take_numbers(step.count, not step.call.has_numbers) - step.count) + 1
  return six_bytes(step.seq * 2 + (size > SMALL and 1 or 0))
end

-- Write a new entry in its place, and remove those that give way: `own`, with its id, which may be the caller's, and
-- `other`, under its key. Return the answer.
local function write_entry(step, new, goes_behind, own, other)
  local call, id, header, body = step.call, new.id, new.header, new.body
  -- The first write is one that a full Redis refuses. After one that frees memory it would let all others pass.
  local order = next_order(step, #header + #body + 49)
  local name = name_in(body)
  if name then
    count_use(step, name, new.rest + 1)
    if not step.here[name] then
      redis.call('HSET', keys.templates, name, step.brought[name])
      step.here[name] = true
    end
  end

  local index, text = index_of(header), whole(new.when)
  if goes_behind then
    make_untidy()
    index, body = keys.behind, body_behind(body)
  end
  local changed = own and changed_next(own.record, own.header_end, call.now_us) or step.changed
  -- The place comes before its record, so that no record lacks one.
  redis.call('ZADD', index, text, order .. id)
  if new.extras then
    index_extras({key = not goes_behind and new.extras.key, tags = new.extras.tags}, id, order .. id)
  end
  -- A queue may have a copy of the earlier entry. If that is the running task, it is the caller itself.
  local lasts = own and not own.is_caller and own.claim and own.claim.uncertain
  -- The scanner of the earlier entry's lease must not acknowledge this one.
  if own and (lasts or own.place == keys.leased) then
    own.claim.refusals = 0
    end_claim(id, own.claim)
  end
  redis.call('HSET', keys.records, id, record_of(header, order, text, new.created, changed, body))
  -- Not before: it takes the name of the one that was behind.
  if goes_behind then stand_behind(new.key, order .. id) end
  if step.leftovers then
    if not lasts then redis.call('HDEL', keys.claims, id) end
    redis.call('HDEL', keys.errors, id)
    redis.call('ZREM', keys.dead, RECORDLESS .. id)
  end
  -- It is no longer revoked, not even by an entry of this very call.
  if step.is_owing or step.owed and step.owed[id] then
    if step.owed then step.owed[id] = nil end
    redis.call('HDEL', keys.outbox_messages, id)
    redis.call('ZREM', keys.outbox, id)
  end
  if own then displace(step, own, new, lasts, own.runs) end
  if other then displace(step, other, new) end
  if past.kept then note_event('s', call.now, told_of(padded(text) .. labels_in(body), id, new.key)) end
  local looks = goes_behind and tonumber(redis.call('ZSCORE', keys.held, new.key)) or new.when
  step.earliest = math.min(step.earliest, looks)
  return text .. (other and quoted(other.id) or '')
end
