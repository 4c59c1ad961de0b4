--[[ One entry, where it stands, and the moves between places. ]]

-- The first of some indexes that holds a member, and the text of its score there; or nil.
local function place_of(indexes, member)
  for _, index in ipairs(indexes) do
    local score = redis.call('ZSCORE', index, member)
    if score then return index, score end
  end
end

-- Whether a due member is no entry, but what a script left that Redis stopped half-way: its entry has
-- left, or its id stands elsewhere. What has neither record nor tombstone lost its record.
local function is_leftover(member, record, header_end, indexes, tombstones, tombstones_old)
  if not record then return find_tombstone(tombstones, tombstones_old, id_of(member)) end
  local own = header_end and member_of(record, header_end, id_of(member)) or member
  return own ~= member and place_of(indexes, own)
end

-- Put an entry back to wait in `index` until `due`, out of the place where it is. The new place comes
-- before the old one goes: a script that Redis stops half-way must not lose an entry.
local function put_back(index, due, place, member, claims, claim)
  if claim then end_claim(claims, id_of(member), claim) end
  redis.call('ZADD', index, due, member)
  if place and place ~= index then redis.call('ZREM', place, member) end
end

-- When an entry is due that goes back as it came; at once, where its record cannot be read. And how
-- many bytes it took to find out.
local function due_as_before(records, id, now)
  local record = redis.call('HGET', records, id)
  local header_end = header_end_of(record)
  return whole(header_end and due_of(record, header_end) or now), #(record or '')
end

-- An entry that can still be changed: its record and header_end, its member, place and score, and of its
-- claim what outlives a change, which is what is uncertain. Or nil, and the answer that says why not. All
-- that can fail here comes before the first write: nothing is rolled back.
local function entry_of(id, indexes, records, claims, dead_reasons, tombstones, tombstones_old)
  local record = redis.call('HGET', records, id)
  if not record then
    return nil, was_handed_over(tombstones, tombstones_old, id) and 'handed_over' or 'not_found'
  end
  local header_end, defect = header_end_of(record)
  if not header_end then return nil, 'unreadable ' .. defect end
  local member = member_of(record, header_end, id)
  local place, score = place_of(indexes, member)
  local due, _, leased, dead = unpack(indexes)
  -- Nobody claims what is in `due`; and what its list refused is there under a later score.
  if place == due and tonumber(score) == due_of(record, header_end) then
    return record, header_end, member, place, score
  end
  if place == leased and tonumber(score) > math.floor(clock_us() / 1000) then
    return nil, 'in_flight'
  end
  if place == dead then redis.call('HLEN', dead_reasons) end
  local text = redis.call('HGET', claims, id)
  local claim = (text or place == leased) and parse_claim(text)
  if place == leased then
    -- A lease that ran out is an attempt whose outcome nobody knows.
    claim.attempts, claim.uncertain = claim.attempts + 1, true
  elseif claim and not claim.uncertain then
    claim.attempts = 0
  end
  if claim then claim.refusals = 0 end
  return record, header_end, member, place, score, claim
end

-- An entry cannot be handed over: it is dead; its record stays, and so does what is known.
local function bury(dead, dead_reasons, now, member, reason)
  if reason == NO_RECORD then member = RECORDLESS .. id_of(member) end
  redis.call('HSET', dead_reasons, id_of(member), reason)
  redis.call('ZADD', dead, whole(now), member)
end
