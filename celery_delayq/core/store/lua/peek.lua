--[[ peek: which of the met entries a selection includes, and their states.

flag     reads      1: return the records; or 0
filter   filter     the selection's filter: see prelude/targets.lua
number   max_bytes  look at nothing more after so many bytes, > 0
text...    members  the entries that it met, 1 to 1000

reply    now, words, found, templates of name text

Returns  now, us; a word for each member; if requested, the records of those that are included, in order, each '' if
         missing, and the templates that they share. The word is its state: SCHEDULED, PAUSED, IN_FLIGHT (its lease
         lasts), LAPSED (its lease is over) or DEAD, with d its due time, ms | UNREADABLE: dead, with an unreadable
         record | skipped | again (it was not looked at). If requested, it has its facts, see prelude/targets.lua, and
         g when its grace period starts, ms, if it has a late policy
Cost     O(log N) a member
Keeps    changes nothing
]]
local now_us = clock_us()
local lanes = new_lanes(now_us)
local words, found, brought, bytes = {}, {}, {}, 0

-- Whether a selection includes unreadable entries: if its only condition is that they are dead.
local asks_for_dead = filter.state == 'DEAD'
  and not (filter.tasks or filter.queues or filter.tags or filter.after or filter.before)

local has_claims = reads and redis.call('HLEN', keys.claims) > 0

-- The facts that stand behind the state of an entry, if the caller asks for them.
local function read_of(entry)
  if not reads then return '' end
  local record, header_end, from = entry.record, entry.header_end, nil
  found[#found + 1] = record or ''
  if header_end then
    bytes = bytes + (bring(template_of(record, header_end), brought) or 0)
    from = counted_from(lanes, record, header_end, true)
  end
  return facts_of(entry, lanes, has_claims and entry.place ~= keys.due) .. (from and ':g' .. whole(from) or '')
end

local function word_of(member)
  local id = id_of(member)
  local record = redis.call('HGET', keys.records, id)
  bytes = bytes + #(record or '')
  local header_end = header_end_of(record)
  local entry = {id = id, record = record, header_end = header_end, place = keys.dead}
  if not header_end then
    entry.score = asks_for_dead and redis.call('ZSCORE', keys.dead, member)
    return entry.score and 'UNREADABLE' .. read_of(entry) or SKIPPED
  end
  entry.member = member_of(record, header_end, id)
  entry.place, entry.score, entry.there = place_of(entry.member, record, header_end)
  if not is_meant(entry, member, filter, lanes) then return SKIPPED end
  local state = state_of(entry, lanes)
  if entry.place == keys.leased and tonumber(entry.score) <= now_us / 1000 then state = 'LAPSED' end
  return state .. ':d' .. whole(due_of(record, header_end)) .. read_of(entry)
end

for at, member in ipairs(members) do words[at] = bytes < max_bytes and word_of(member) or 'again' end
return {now_us, table.concat(words, ' '), found, brought}
