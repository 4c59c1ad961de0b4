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
KEYS[12]  answers         HASH  operation -> answer
KEYS[13]  answers_old     HASH  the same, older
KEYS[14]  fences          HASH  id -> when a call left no entry under it, us
KEYS[15]  fences_old      HASH  the same, older
KEYS[16]  outbox          ZSET  id whose REVOKED is to be stored -> from when on a scanner does it, ms
KEYS[17]  outbox_messages HASH  id -> whether it is certain (c or u), when it was cancelled, message
KEYS[18]  meta            HASH  timeout -> longest call, ms; turned -> when the generations were, ms

ARGV[1]  operation  names the call
ARGV[2]  issued     when this request was made, us by Redis's clock
ARGV[3]  deadline   when the call ends, us by Redis's clock
ARGV[4]  id         the task's id
ARGV[5]  owes       1: REVOKED is to be stored for it, by the caller or else by a scanner; or 0

Returns  {now in us, 'join' | 'late' | 'stale'}: refused, see prelude/call.lua; or {now in us, 'answer',
         'done' | 'uncertain' | 'in_flight' | 'handed_over' | 'not_found' | 'unreadable' and why}; where it
         is done, to the first request also when, us, and the message; to others, what is owed of that
         uncertain: removed, but an earlier attempt may have delivered it
Cost     O(log N)
Keeps    an entry under a lease stays: whoever holds it may be publishing it this very moment
]]
local due, relay, leased, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local records, templates, template_uses = KEYS[5], KEYS[6], KEYS[7]
local claims, dead_reasons, tombstones, tombstones_old = KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local answers, answers_old, fences, fences_old = KEYS[12], KEYS[13], KEYS[14], KEYS[15]
local outbox, outbox_messages, meta = KEYS[16], KEYS[17], KEYS[18]
local operation, issued, deadline = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local id, owes = ARGV[4], ARGV[5] == '1'

local call, ended = begin_call(operation, deadline, answers, answers_old, meta)
if not call then
  if ended[3] == 'done' or ended[3] == 'uncertain' then
    ended[4], ended[5] = parse_owed(redis.call('HGET', outbox_messages, id))
  end
  return ended
end
local record, header_end, member, place, _, claim =
  entry_of(id, {due, relay, leased, dead}, records, claims, dead_reasons, tombstones, tombstones_old)
if record and is_overtaken(call, issued, changed_of(record, header_end)) then return stale(call) end
if not record then
  local answer = header_end
  allow_when_full(tombstones)
  if is_gone(answer) then
    fence(call, id, fences)
    if redis.call('ZREM', dead, RECORDLESS .. id) == 1 then
      redis.call('HDEL', dead_reasons, id)
      answer = 'done'
    end
  end
  return end_call(call, answer, answers, answers_old, fences, fences_old, meta)
end

local now = math.floor(call.now_us / 1000)
local name = template_of(record, header_end)
local line = lines_for(record, header_end, templates, {})
local message = line ~= nil and message_of(record, header_end, id, line) or ''
local answer = claim and claim.uncertain and 'uncertain' or 'done'

-- Nothing is rolled back: all that can fail comes before the record goes.
check_types({}, {template_uses, fences})
if owes then check_types({outbox}, {outbox_messages}) end
local rotates = is_full(tombstones, tombstones_old, 1)
allow_when_full(tombstones)
redis.call('ZREM', due, '')
fence(call, id, fences)
local reply = end_call(call, answer, answers, answers_old, fences, fences_old, meta,
  {whole(call.now_us), message})
if owes then owe(outbox, outbox_messages, call, id, answer == 'done' and 'c' or 'u', message) end
local leaving = {
  ids = {id}, place = place, members = {member}, claimed = claim, dead = place == dead, shared = {},
}
if name then leaving.shared[name] = 1 end
depart(leaving, answer == 'done' and 'c' or 'u', now, {
  records = records, claims = claims, dead_reasons = dead_reasons, tombstones = tombstones,
  templates = templates, template_uses = template_uses,
})
-- It is done, and its caller is told so, also where he may not begin another generation; whoever
-- hands over will.
if rotates and type(redis.pcall('UNLINK', tombstones_old)) ~= 'table' then
  redis.pcall('RENAME', tombstones, tombstones_old)
end
return reply
