--[[ find: one entry and where it stands.

text     target  who is meant: see prelude/entry.lua

Returns  {state, id, record, its header_end, the template that it shares or '', what went wrong with it last or '',
         attempts made, next try in ms or -1, since when it is dead in ms or -1, by what it is paused: * (everything),
         q (its queue), t (its task), or -}, state one of
         SCHEDULED | PAUSED | IN_FLIGHT | DEAD; {'unreadable', why}; of one that has left, while its tombstone is kept,
         {how, when in ms, now in ms}, how one of handed_over | skipped | cancelled | uncertain: cancelled, but a
         copy of it may have been delivered; or {}
Cost     O(log N)
Keeps    changes nothing
]]
local id, name = meant_by(target)

local record = id and redis.call('HGET', keys.records, id)
if not record then
  local tombstone = find_tombstone(name)
  if not tombstone then return {} end
  local how, when = string.match(tombstone, '^(.)(' .. string.rep('%d', 13) .. ')')
  when = tonumber(when or 0)
  local left = ({h = 'handed_over', s = 'skipped', c = 'cancelled', u = 'uncertain'})[how]
  return left and {left, when, math.floor(clock_us() / 1000)} or {}
end
local header_end, defect = header_end_of(record)
if not header_end then return {'unreadable', defect} end
local shared = template_of(record, header_end)
local template = shared and redis.call('HGET', keys.templates, shared)

-- Mostly it waits, like all others.
if redis.call('HGET', keys.meta, 'tidy') == '1' then
  return {'SCHEDULED', id, record, header_end, template or '', '', 0, -1, -1, '-'}
end

local place, score, there = place_of(PLACES, member_of(record, header_end, id), record, header_end)
local lanes = new_lanes(clock_us())
local state = state_of({place = place, there = there, record = record, header_end = header_end}, lanes)
local failed, attempts = '', 0
if place ~= keys.due then
  failed = redis.call('HGET', keys.errors, id) or ''
  attempts = parse_claim(redis.call('HGET', keys.claims, id)).attempts
end
return {
  state, id, record, header_end, template or '', failed, attempts,
  place == keys.refused and tonumber(score) or -1, place == keys.dead and tonumber(score) or -1,
  paused_by(lanes, record, header_end),
}
