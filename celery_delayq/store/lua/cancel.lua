--[[ cancel: remove an entry that has not left yet.

KEYS[1]   due             ZSET  member -> due time, ms
KEYS[2]   relay           ZSET  member -> due time, ms
KEYS[3]   leased          ZSET  member -> lease deadline, ms
KEYS[4]   dead            ZSET  member -> since when, ms
KEYS[5]   records         HASH  id -> record
KEYS[6]   templates       HASH  name -> template
KEYS[7]   template_uses   HASH  name -> how many records share the template
KEYS[8]   claims          HASH  id -> claim
KEYS[9]   dead_reasons    HASH  id -> why it is dead
KEYS[10]  tombstones      HASH  id -> tombstone of what left
KEYS[11]  tombstones_old  HASH  the same, older

ARGV[1]  id  the task's id

Returns  {'done' | 'uncertain', record, its header_end, the template that it shares or ''}, or
         {'in_flight' | 'handed_over' | 'not_found'}, or {'unreadable', why}
         uncertain: removed, but an earlier attempt may have delivered it
Cost     O(log N)
Keeps    an entry under a lease stays: whoever holds it may be publishing it this very moment
]]
local due, relay, leased, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local records, templates, template_uses = KEYS[5], KEYS[6], KEYS[7]
local claims, dead_reasons, tombstones, tombstones_old = KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local id = ARGV[1]

local record, header_end, member, place, _, claim =
  entry_of(id, {due, relay, leased, dead}, records, claims, dead_reasons, tombstones, tombstones_old)
if not record then return header_end end

local now = math.floor(clock_us() / 1000)
local name = template_of(record, header_end)
local template = name and redis.call('HGET', templates, name)
local uncertain = claim and claim.uncertain

-- Nothing is rolled back: all that can fail comes before the record goes, and the record before its
-- place, which the next hand-over clears.
check_types({}, {template_uses})
local rotates = is_full(tombstones, tombstones_old, 1)
allow_when_full(tombstones)
redis.call('ZREM', due, '')
redis.call('HSET', tombstones, id, tombstone_of((uncertain and 'u' or 'c') .. whole(now), record, header_end))
redis.call('HDEL', records, id)
if place then redis.call('ZREM', place, member) end
if claim then redis.call('HDEL', claims, id) end
if place == dead then redis.call('HDEL', dead_reasons, id) end
if name then drop_template(templates, template_uses, name, 1) end
-- It is done, and its caller is told so, also where he may not begin another generation; whoever
-- hands over will.
if rotates and type(redis.pcall('UNLINK', tombstones_old)) ~= 'table' then
  redis.pcall('RENAME', tombstones, tombstones_old)
end
return {uncertain and 'uncertain' or 'done', record, header_end, template or ''}
