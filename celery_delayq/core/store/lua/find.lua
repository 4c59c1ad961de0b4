--[[ find: one entry and its state.

text     target  see prelude/entry.lua

reply    word, id, record, template

Returns  a word; and of an entry its id, its record, and the template that it shares or ''. The word is its state, one of
         SCHEDULED | PAUSED | IN_FLIGHT | DEAD, with its facts, see prelude/targets.lua; unreadable, w why; how one
         left, while its tombstone is kept: handed_over | skipped | cancelled | uncertain (cancelled, but a copy of it
         may have been delivered), with t when, and n now, ms; or none
Cost     O(log N)
Keeps    changes nothing
]]
local id, name = meant_by(target)

local record = id and redis.call('HGET', keys.records, id)
if not record then
  local left, when = how_left(name)
  return {left and left .. ':t' .. when .. ':n' .. whole(math.floor(clock_us() / 1000)) or 'none'}
end
local header_end, defect = header_end_of(record)
if not header_end then return {'unreadable' .. quoted('w' .. defect)} end
local shared = template_of(record, header_end)
local template = shared and redis.call('HGET', keys.templates, shared) or ''

-- Most entries just wait.
local tidy = redis.call('HGET', keys.meta, 'tidy') or ''
local all_wait, is_unpaused = string.find(tidy, 'w') ~= nil, string.find(tidy, 'u') ~= nil
if all_wait and is_unpaused then return {'SCHEDULED:h' .. header_end, id, record, template} end

local entry = {id = id, record = record, header_end = header_end, place = index_of(record)}
if not all_wait then
  local places = {entry.place, keys.leased, keys.dead, keys.refused, keys.behind}
  entry.place, entry.score, entry.there = place_of(member_of(record, header_end, id), record, header_end, places)
end
local lanes = is_unpaused and {now = 0, known = {}, any = false} or lanes_about(record, header_end)
local facts = facts_of(entry, lanes, not all_wait and entry.place ~= keys.due)
return {state_of(entry, lanes) .. facts, id, record, template}
