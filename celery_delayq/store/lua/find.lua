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
         scheduled | in_flight | dead; {'unreadable', why}; {'handed_over', when in ms}; or {}
Cost     O(log N)
Keeps    changes nothing
]]
local due, relay, leased, records = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local templates, dead_reasons, tombstones, tombstones_old = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local id = ARGV[1]

local record = redis.call('HGET', records, id)
if not record then
  if not was_handed_over(tombstones, tombstones_old, id) then return {} end
  return {'handed_over', tonumber(sub(find_tombstone(tombstones, tombstones_old, id), 2, 14))}
end
local header_end, defect = header_end_of(record)
if not header_end then return {'unreadable', defect} end
local name = template_of(record, header_end)
local template = name and redis.call('HGET', templates, name)

local place = place_of({due, relay, leased}, member_of(record, header_end, id))
if place == leased then return {'in_flight', record, header_end, template or '', ''} end
if place then return {'scheduled', record, header_end, template or '', ''} end
return {'dead', record, header_end, template or '', redis.call('HGET', dead_reasons, id) or ''}
