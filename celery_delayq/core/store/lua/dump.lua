--[[ dump: everything stored of some entries, whether this version can read their records or not.

number   max_bytes  look at nothing more after so many bytes, > 0
text...    members  results of the search for all, 0 to 1000; of unreadable ones, RECORDLESS and the id

reply    now, owed, words, found, templates of name text

Returns  now, us; for how many entries REVOKED must be stored; a word for each member; the records of those that are
         here, each '' if missing, and the templates that they share. The word is its place: waiting, paused (parked, or
         due and to be parked by the next scanner), refused, behind (another one holds its key), in_flight or dead, with
         its facts, see prelude/targets.lua, and k, if it holds its key or, in flight, would if it came back |
         unreadable, w why | lost: it is dead, and its record is gone; with its facts | gone: it has left | again: it
         was not looked at
Cost     O(log N) a member
Keeps    changes nothing
]]
local words = {
  [keys.due] = 'waiting', [keys.relay] = 'waiting', [keys.leased] = 'in_flight', [keys.dead] = 'dead',
  [keys.refused] = 'refused', [keys.parked] = 'paused', [keys.behind] = 'behind',
}
local now_us = clock_us()
local lanes = new_lanes(now_us)
local text, found, brought, bytes = {}, {}, {}, 0
local has_claims = redis.call('HLEN', keys.claims) > 0

-- Whether an entry holds its key, as waiting entries do. One in flight gets it back when that ends, if no other entry
-- waits under it: another one may have had it meanwhile.
local function is_named(id, record, header_end, place)
  local extras = extras_of(record, header_end)
  if not extras or not extras.key then return false end
  return holder_of(extras.key) == id or place == keys.leased and not other_holder(extras.key, id)
end

local function word_of(member)
  local id = id_of(member)
  local record = redis.call('HGET', keys.records, id)
  bytes = bytes + #(record or '')
  local header_end, defect = header_end_of(record)
  local is_numbered = sub(member, 1, 6) ~= RECORDLESS
  if not header_end then
    local since = not record and not is_numbered and redis.call('ZSCORE', keys.dead, member)
    if not record and not since then return 'gone' end
    found[#found + 1] = record or ''
    if record then return 'unreadable' .. quoted('w' .. defect) end
    return 'lost' .. facts_of({id = id, place = keys.dead, score = since}, lanes, false)
  end
  local own = member_of(record, header_end, id)
  -- Scheduled again since then. The number's last bit only tells the record's size.
  if not is_numbered or serial_of(own) ~= serial_of(member) then
    return 'gone'
  end
  found[#found + 1] = record
  bytes = bytes + (bring(template_of(record, header_end), brought) or 0)
  -- Without a place, because Redis stopped a script half-way, it counts as dead.
  local place, score = place_of(own, record, header_end)
  local entry = {id = id, record = record, header_end = header_end, place = place, score = score}
  local facts = facts_of(entry, lanes, has_claims)
  local is_met = place == keys.due or place == keys.relay or place == keys.refused
  if is_met and tonumber(score) <= lanes.now and lane_for(pauses_of(lanes, record, header_end), record, header_end) then
    place = keys.parked
  end
  return words[place or keys.dead] .. facts .. (is_named(id, record, header_end, place) and ':k' or '')
end

for at, member in ipairs(members) do text[at] = bytes < max_bytes and word_of(member) or 'again' end
return {now_us, redis.call('ZCARD', keys.outbox), table.concat(text, ' '), found, brought}
