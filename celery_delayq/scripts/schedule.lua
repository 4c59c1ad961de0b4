--[[ schedule: hold one entry until it is due.

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
KEYS[12] wake        LIST  at most one token
KEYS[13] meta        HASH  seq -> last insertion number

ARGV[1]  id           the task's id
ARGV[2]  mode         at | after: what `ms` counts from
ARGV[3]  ms           unix time, or milliseconds from now, >= 0
ARGV[4]  latest       greatest due time allowed, unix ms
ARGV[5]  destination  the record's part before the seam, from its second byte
ARGV[6]  operation    8 bytes, the same when the caller repeats a call whose reply it lost
ARGV[7]  body         the record's part from the letter that tells its form
ARGV[8]  template     the template that `body` shares; empty if the caller believes it is here
ARGV[9]  again        1: an earlier call may have run; what left is searched for the operation
ARGV[10] supersede    1: the caller is this very task, running, so an earlier entry was delivered

Returns  {'ok', due}; or {'conflict'}, {'late'} (due time past `latest`), {'template'} (it has to
         be sent along): nothing was written
Cost     O(log N)
Keeps    an id has one record and one place; a repeated operation changes nothing
]]
local due, relay, leased, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local messages, templates, uses = KEYS[5], KEYS[6], KEYS[7]
local claims, reasons, handed, handed_old = KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local wake, meta = KEYS[12], KEYS[13]
local id, mode, ms, latest = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local destination, operation, body = ARGV[5], ARGV[6], ARGV[7]
local template, again, supersede = ARGV[8], ARGV[9] == '1', ARGV[10] == '1'

local now_us = clock_us()
local when = ms
if mode == 'after' then
  when = math.ceil(now_us / 1000) + ms
end
if when > latest then return {'late'} end

local trace = again and find_trace(handed, handed_old, id)
if trace and sub(trace, -8) == operation then return {'ok', tonumber(sub(trace, 15, 27))} end

local indexes = {due, relay, leased, dead}
local present = redis.call('HGET', messages, id)
local seam = present and seam_of(present)
local member = seam and member_of(present, seam, id)
local place = member and place_of(indexes, member)
if present then
  local repeated = seam and operation_of(present, seam) == operation
  if repeated and place then return {'ok', due_of(present, seam)} end
  if not seam or not (supersede or repeated) then return {'conflict'} end
end

-- All that can fail comes before the first write: nothing is rolled back.
local index = sub(destination, 1, 1) == 'L' and due or relay
local token = needs_token(wake, index, when)
local claimed = redis.call('HEXISTS', claims, id) == 1
local explained = redis.call('HEXISTS', reasons, id) == 1
local name = sub(body, 1, 1) == 'T' and sub(body, 2, 13)
local known = not name or redis.call('HEXISTS', templates, name) == 1
if not known and template == '' then return {'template'} end
local seq = redis.call('HINCRBY', meta, 'seq', 1)
if name then redis.call('HINCRBY', uses, name, 1) end
if not known then redis.call('HSET', templates, name, template) end

if place then redis.call('ZREM', place, member) end
local shared = present and template_of(present, seam)
if shared then drop_template(templates, uses, shared, 1) end
if claimed then redis.call('HDEL', claims, id) end
if explained then redis.call('HDEL', reasons, id) end

local bytes = {}
for place = 6, 1, -1 do
  bytes[place] = string.char(seq % 256)
  seq = math.floor(seq / 256)
end
local order = table.concat(bytes)
redis.call('HSET', messages, id, FORMAT .. destination .. order .. string.format('%-13.0f', when)
  .. string.format('%013.0f', math.floor(now_us / 1000)) .. operation .. body)
redis.call('ZADD', index, whole(when), order .. id)
if token then redis.call('LPUSH', wake, '1') end
return {'ok', when}
