--[[ find: one entry and where it stands.

KEYS[1]  due             ZSET  member -> due time, ms
KEYS[2]  relay           ZSET  member -> due time, ms
KEYS[3]  leased          ZSET  member -> lease deadline, ms
KEYS[4]  records         HASH  id -> record
KEYS[5]  templates       HASH  name -> template
KEYS[6]  dead_reasons    HASH  id -> why it is dead
KEYS[7]  tombstones      HASH  id -> tombstone of what left
KEYS[8]  tombstones_old  HASH  the same, older

ARGV[1]  id  the task's id

Returns  {state, record, its header_end, the template that it shares or '', reason or ''}, state one of
         scheduled | in_flight | dead; {'unreadable', why}; {'handed_over', when in ms};
         {'cancelled', how many ms ago}, if no copy of it can have been delivered; or {}
Cost     O(log N)
Keeps    changes nothing
]]
local due, relay, leased, records = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local templates, dead_reasons, tombstones, tombstones_old = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local id = ARGV[1]

local record = redis.call('HGET', records, id)
if not record then
  local tombstone = find_tombstone(tombstones, tombstones_old, id)
  if not tombstone then return {} end
  local how, when = string.match(tombstone, '^(.)(' .. string.rep('%d', 13) .. ')')
  when = tonumber(when or 0)
  if how == 'h' then return {'handed_over', when} end
  return how == 'c' and {'cancelled', math.floor(clock_us() / 1000) - when} or {}
end
local header_end, defect = header_end_of(record)
if not header_end then return {'unreadable', defect} end
local name = template_of(record, header_end)
local template = name and redis.call('HGET', templates, name)

local place = place_of({due, relay, leased}, member_of(record, header_end, id))
if place == leased then return {'in_flight', record, header_end, template or '', ''} end
if place then return {'scheduled', record, header_end, template or '', ''} end
return {'dead', record, header_end, template or '', redis.call('HGET', dead_reasons, id) or ''}
