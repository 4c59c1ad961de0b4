--[[ keyed: return the entry that has each of some unique keys, or how the last one left.

number   max_bytes  look at nothing more after so many bytes of records, > 0
text...  names      the keys, up to 1000

reply    now, words, found of id record, templates of name text

Returns  now, us; a word for each key; of those with an entry that can be read, in order, its id and record; and the
         templates that they share. The word is the state of that entry, SCHEDULED | PAUSED | IN_FLIGHT | DEAD, with its
         facts, see prelude/targets.lua: the one behind the holder, if there is one; unreadable; held: by an entry that has
         left; while the key's tombstone is kept, how its last one left, as `find` says it; none; or again: it was not
         looked at
Cost     O(log N) a key
Keeps    changes nothing
]]
local lanes = new_lanes(clock_us())
local has_claims = redis.call('HLEN', keys.claims) > 0
local words, found, brought, bytes = {}, {}, {}, 0

local function word_of(key)
  local id, name = meant_by('k' .. key)
  local record = id and redis.call('HGET', keys.records, id)
  bytes = bytes + #(record or '')
  local header_end = header_end_of(record)
  if record and not header_end then return 'unreadable' end
  local extras = record and extras_of(record, header_end)
  -- A row of another program, or of a script that Redis stopped, names an entry without this key.
  if not extras or extras.key ~= key then
    return is_key_held(key, lanes.now) and 'held' or how_left(name) or 'none'
  end
  local entry = {id = id, record = record, header_end = header_end}
  entry.place, entry.score, entry.there = place_of(member_of(record, header_end, id), record, header_end)
  found[#found + 1], found[#found + 2] = id, record
  bytes = bytes + (bring(template_of(record, header_end), brought) or 0)
  return state_of(entry, lanes) .. facts_of(entry, lanes, has_claims and entry.place ~= keys.due)
end

for at, key in ipairs(names) do words[at] = bytes < max_bytes and word_of(key) or 'again' end
return {lanes.now * 1000, table.concat(words, ' '), found, brought}
