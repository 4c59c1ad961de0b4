--[[ peek: which of the met entries a selection includes, and their states.

flag     reads      1: return the records; or 0
filter   filter     the selection's filter: see prelude/targets.lua
number   max_bytes  look at nothing more after so many bytes, > 0
text...    members  the entries that it met, 1 to 1000

reply    now, words, found of record error known, templates of name text

Returns  now, us; the included records in order, if requested, and the templates that they share.
         known: attempts made, next try in ms or -1, when it died in ms or -1, its pauses, as in `find`, when its grace
         period starts, ms, or -1, and, after a colon, which entry it is behind, with blanks between. There is a word
         for each member: SCHEDULED, PAUSED, IN_FLIGHT (its lease lasts), LAPSED (its lease is over) or DEAD, then the
         due time, ms, and header_end | UNREADABLE: dead, with an unreadable record | skipped | again (it was not
         looked at)
Cost     O(log N) a member
Keeps    changes nothing
]]
local now_us = clock_us()
local lanes = new_lanes(now_us)
local words, found, brought, bytes = {}, {}, {}, 0

-- Whether a selection includes unreadable entries: if its only condition is that they are dead.
local asks_for_dead = filter.state == 'DEAD'
  and not (filter.tasks or filter.queues or filter.tags or filter.after or filter.before)

local function read(id, record, place, score, header_end)
  if not reads then return end
  local attempts = place ~= keys.due and parse_claim(redis.call('HGET', keys.claims, id)).attempts or 0
  local known = {attempts, place == keys.refused and score or -1, place == keys.dead and score or -1, '-', -1, ':'}
  if header_end then
    known[4] = paused_by(lanes, record, header_end)
    known[5] = counted_from(lanes, record, header_end, true) or -1
    if place == keys.behind then known[6] = quoted(holder_before(record, header_end)) end
  end
  found[#found + 1], found[#found + 2] = record or '', redis.call('HGET', keys.errors, id) or ''
  found[#found + 1] = table.concat(known, ' ')
end

local function word_of(member)
  local id = id_of(member)
  local record = redis.call('HGET', keys.records, id)
  bytes = bytes + #(record or '')
  local header_end = header_end_of(record)
  if not header_end then
    local since = asks_for_dead and redis.call('ZSCORE', keys.dead, member)
    if not since then return SKIPPED end
    read(id, record, keys.dead, since)
    return 'UNREADABLE'
  end
  local entry = {record = record, header_end = header_end, member = member_of(record, header_end, id)}
  entry.place, entry.score, entry.there = place_of(entry.member, record, header_end)
  if not is_meant(entry, member, filter, lanes) then return SKIPPED end
  read(id, record, entry.place, entry.score, header_end)
  if reads then bytes = bytes + (bring(template_of(record, header_end), brought) or 0) end
  local state = state_of(entry, lanes)
  if entry.place == keys.leased and tonumber(entry.score) <= now_us / 1000 then state = 'LAPSED' end
  return state .. ':' .. whole(due_of(record, header_end)) .. ':' .. header_end
end

for at, member in ipairs(members) do words[at] = bytes < max_bytes and word_of(member) or 'again' end
return {now_us, table.concat(words, ' '), found, brought}
