--[[ look: one entry and where it stands.

KEYS[1]  due        ZSET  member -> due time, ms
KEYS[2]  relay      ZSET  member -> due time, ms
KEYS[3]  leased     ZSET  member -> lease deadline, ms
KEYS[4]  messages   HASH  id -> record
KEYS[5]  templates  HASH  name -> template
KEYS[6]  reasons    HASH  id -> why it is dead
KEYS[7]  handed     HASH  id -> trace of what left
KEYS[8]  handed_old HASH  the same, older

ARGV[1]  id  the task's id

Returns  {state, record, its seam, the template that it shares or '', reason or ''}, state one of
         scheduled | in_flight | dead; {'unreadable', why}; {'handed_over', when in ms}; or {}
Cost     O(log N)
Keeps    changes nothing
]]
local due, relay, leased, messages = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local templates, reasons, handed, handed_old = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local id = ARGV[1]

local record = redis.call('HGET', messages, id)
if not record then
  if not was_handed_over(handed, handed_old, id) then return {} end
  return {'handed_over', tonumber(sub(find_trace(handed, handed_old, id), 2, 14))}
end
local seam, defect = seam_of(record)
if not seam then return {'unreadable', defect} end
local name = template_of(record, seam)
local template = name and redis.call('HGET', templates, name)

local place = place_of({due, relay, leased}, member_of(record, seam, id))
if place == leased then return {'in_flight', record, seam, template or '', ''} end
if place then return {'scheduled', record, seam, template or '', ''} end
return {'dead', record, seam, template or '', redis.call('HGET', reasons, id) or ''}
