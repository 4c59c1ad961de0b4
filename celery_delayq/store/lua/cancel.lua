--[[ cancel: remove an entry that has not left yet.

KEYS[1]  due         ZSET  member -> due time, ms
KEYS[2]  relay       ZSET  member -> due time, ms
KEYS[3]  leased      ZSET  member -> lease deadline, ms
KEYS[4]  dead        ZSET  member -> when it was set aside, ms
KEYS[5]  messages    HASH  id -> record
KEYS[6]  templates   HASH  name -> template
KEYS[7]  uses        HASH  name -> how many records share the template
KEYS[8]  claims      HASH  id -> claim
KEYS[9]  reasons     HASH  id -> why it is dead
KEYS[10] handed      HASH  id -> trace of what left
KEYS[11] handed_old  HASH  the same, older

ARGV[1]  id  the task's id

Returns  {'done' | 'uncertain', record, its seam, the template that it shares or ''}, or
         {'in_flight' | 'handed_over' | 'not_found'}, or {'unreadable', why}
         uncertain: removed, but an earlier attempt may have delivered it
Cost     O(log N)
Keeps    an entry under a lease stays: whoever holds it may be publishing it this very moment
]]
local due, relay, leased, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local messages, templates, uses = KEYS[5], KEYS[6], KEYS[7]
local claims, reasons, handed, handed_old = KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local id = ARGV[1]

local record = redis.call('HGET', messages, id)
if not record then
  return {was_handed_over(handed, handed_old, id) and 'handed_over' or 'not_found'}
end
local seam, defect = seam_of(record)
if not seam then return {'unreadable', defect} end

-- All that can fail comes before the first step that matters: nothing is rolled back.
local now = math.floor(clock_us() / 1000)
local member = member_of(record, seam, id)
local place, score = place_of({due, relay, leased, dead}, member)
if place == leased and tonumber(score) > now then return {'in_flight'} end
-- Nobody claims what is in `due`.
local claim = place ~= due and redis.call('HGET', claims, id)
local explained = place == dead and redis.call('HEXISTS', reasons, id) == 1
local name = template_of(record, seam)
local template = name and redis.call('HGET', templates, name)
local rotates = is_full(handed, handed_old, 1)

allow_when_full(handed)
if name then redis.call('HINCRBY', uses, name, 0) end
redis.call('HSET', handed, id, trace_of('c', now, record, seam))
if place then redis.call('ZREM', place, member) end
redis.call('HDEL', messages, id)
if claim then redis.call('HDEL', claims, id) end
if explained then redis.call('HDEL', reasons, id) end
if name then drop_template(templates, uses, name, 1) end
if rotates then rotate(handed, handed_old) end
-- A lease that ran out is an attempt whose outcome nobody knows.
local unsure = place == leased or claim and parse_claim(claim).unsure
return {unsure and 'uncertain' or 'done', record, seam, template or ''}
