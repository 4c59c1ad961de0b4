--[[ find: one entry and where it stands.

KEYS[1]   due             ZSET  member -> due time, ms
KEYS[2]   relay           ZSET  member -> due time, ms
KEYS[3]   leased          ZSET  member -> lease deadline, ms
KEYS[4]   refused         ZSET  member -> next try, ms
KEYS[5]   parked          ZSET  lane, due time, kind, member -> 0
KEYS[6]   records         HASH  id -> record
KEYS[7]   holders         HASH  key -> id of the entry that has it
KEYS[8]   templates       HASH  name -> template
KEYS[9]   errors          HASH  id -> what went wrong with it last
KEYS[10]  tombstones      HASH  id -> tombstone of what left
KEYS[11]  tombstones_old  HASH  the same, older

ARGV[1]  target  who is meant: see prelude/entry.lua

Returns  {state, id, record, its header_end, the template that it shares or '', reason or ''}, state one of
         scheduled | paused | in_flight | dead; {'unreadable', why}; {'handed_over', when in ms};
         {'cancelled', how many ms ago}, if no copy of it can have been delivered; or {}
Cost     O(log N)
Keeps    changes nothing
]]
local target = ARGV[1]

local id, name = meant_by(target, holders)
local places = {due, relay, leased, refused, parked = parked}

local record = id and redis.call('HGET', records, id)
if not record then
  local tombstone = find_tombstone(tombstones, tombstones_old, name)
  if not tombstone then return {} end
  local how, when = string.match(tombstone, '^(.)(' .. string.rep('%d', 13) .. ')')
  when = tonumber(when or 0)
  if how == 'h' then return {'handed_over', when} end
  return how == 'c' and {'cancelled', math.floor(clock_us() / 1000) - when} or {}
end
local header_end, defect = header_end_of(record)
if not header_end then return {'unreadable', defect} end
local shared = template_of(record, header_end)
local template = shared and redis.call('HGET', templates, shared)

local place = place_of(places, member_of(record, header_end, id), record, header_end)
local state = place == leased and 'in_flight' or place == parked and 'paused' or place and 'scheduled' or 'dead'
return {state, id, record, header_end, template or '', state == 'dead' and redis.call('HGET', errors, id) or ''}
