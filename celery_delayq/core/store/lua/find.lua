--[[ find: one entry and its state.

text     target  see prelude/entry.lua

Returns  {state, id, record, its header_end, the template that it shares or '', its last error or '', attempts made, next
         try in ms or -1, when it died in ms or -1, by what it is paused: * (everything), q (its queue), t (its task),
         or -, and which entry it is behind, see holder_before}, state one of SCHEDULED | PAUSED | IN_FLIGHT | DEAD;
         {'unreadable', why}; while the tombstone of one that left is kept, {how, when in ms, now in ms}, how one
         of handed_over | skipped | cancelled | uncertain: cancelled, but a copy of it may have been delivered; or {}
Cost     O(log N)
Keeps    changes nothing
]]
local id, name = meant_by(target)

local record = id and redis.call('HGET', keys.records, id)
if not record then
  local tombstone = find_tombstone(name)
  if not tombstone then return {} end
  local how, when = string.match(tombstone, '^(.)(%d%d%d%d%d%d%d%d%d%d%d%d%d)')
  when = tonumber(when or 0)
  local left = ({h = 'handed_over', s = 'skipped', c = 'cancelled', u = 'uncertain'})[how]
  return left and {left, when, math.floor(clock_us() / 1000)} or {}
end
local header_end, defect = header_end_of(record)
if not header_end then return {'unreadable', defect} end
local shared = template_of(record, header_end)
local template = shared and redis.call('HGET', keys.templates, shared)

-- Most entries just wait.
local tidy = redis.call('HGET', keys.meta, 'tidy') or ''
local all_wait, is_unpaused = string.find(tidy, 'w') ~= nil, string.find(tidy, 'u') ~= nil
if all_wait and is_unpaused then
  return {'SCHEDULED', id, record, header_end, template or '', '', 0, -1, -1, '-', ''}
end

local place, score, there = index_of(record), nil, nil
if not all_wait then
  local places = {place, keys.leased, keys.dead, keys.refused, keys.behind}
  place, score, there = place_of(member_of(record, header_end, id), record, header_end, places)
end
local lanes = is_unpaused and {now = 0, known = {}, any = false} or lanes_about(record, header_end)
local state = state_of({place = place, there = there, record = record, header_end = header_end}, lanes)
-- Without an attempt an entry has no claim, and no error.
local claim = not all_wait and place ~= keys.due and redis.call('HGET', keys.claims, id)
local is_failed = claim or place == keys.refused or is_dead(place)
local failed = is_failed and redis.call('HGET', keys.errors, id) or ''
return {
  state, id, record, header_end, template or '', failed, claim and parse_claim(claim).attempts or 0,
  place == keys.refused and tonumber(score) or -1, place == keys.dead and tonumber(score) or -1,
  lanes.any and paused_by(lanes, record, header_end) or '-',
  place == keys.behind and holder_before(record, header_end) or '',
}
