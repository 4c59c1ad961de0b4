--[[ cancel: remove an entry that has not left yet.

KEYS[1]   due              ZSET  member -> due time, ms
KEYS[2]   relay            ZSET  member -> due time, ms
KEYS[3]   leased           ZSET  member -> lease deadline, ms
KEYS[4]   dead             ZSET  member -> since when, ms
KEYS[5]   refused          ZSET  member -> next try, ms
KEYS[6]   parked           ZSET  lane, due time, kind, member -> 0
KEYS[7]   records          HASH  id -> record
KEYS[8]   holders          HASH  key -> id of the entry that has it
KEYS[9]   tags             ZSET  tag, NUL, member -> 0
KEYS[10]  templates        HASH  name -> template
KEYS[11]  template_uses    HASH  name -> how many records share the template
KEYS[12]  claims           HASH  id -> claim
KEYS[13]  errors           HASH  id -> what went wrong with it last
KEYS[14]  tombstones       HASH  id -> tombstone of what left
KEYS[15]  tombstones_old   HASH  the same, older
KEYS[16]  answers          HASH  operation -> answer
KEYS[17]  answers_old      HASH  the same, older
KEYS[18]  fences           HASH  id -> when a call left no entry under it, us
KEYS[19]  fences_old       HASH  the same, older
KEYS[20]  outbox           ZSET  id whose REVOKED is to be stored -> from when on a scanner does it, ms
KEYS[21]  outbox_messages  HASH  id -> whether it is certain (c or u), when it was cancelled, message
KEYS[22]  meta             HASH  timeout -> longest call, ms; turned -> when the generations were, ms
KEYS[23]  history          LIST  what happened last, see prelude/history.lua

ARGV[1]  operation  names the call
ARGV[2]  issued     when this request was made, us by Redis's clock
ARGV[3]  deadline   when the call ends, us by Redis's clock
ARGV[4]  target     who is meant: see prelude/entry.lua
ARGV[5]  owes       1: REVOKED is to be stored for it, by the caller or else by a scanner; or 0

Returns  {now in us, 'join' | 'late' | 'stale'}: refused, see prelude/call.lua; or {now in us, 'answer',
         'done' | 'uncertain' and the id | 'in_flight' | 'handed_over' | 'not_found' | 'unreadable' and
         why}; where it is done, to the first request also when, us, and the message; to others, what is
         owed of that
         uncertain: removed, but an earlier attempt may have delivered it
Cost     O(log N)
Keeps    an entry under a lease stays: whoever holds it may be publishing it this very moment
]]
local operation, issued, deadline = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local target, owes = ARGV[4], ARGV[5] == '1'
local places = {due, relay, leased, dead, refused, parked = parked}

local call, ended = begin_call(operation, issued, deadline, answers, answers_old, meta)
if not call then
  local cancelled = ended[3] and (string.match(ended[3], '^done (.*)$') or string.match(ended[3], '^uncertain (.*)$'))
  if cancelled then ended[4], ended[5] = parse_owed(redis.call('HGET', outbox_messages, cancelled)) end
  return ended
end
local id, name = meant_by(target, holders)
local entry, answer = entry_of(id, name, places, keys)
if entry and is_late_for(call, entry, name, issued, fences, fences_old) then return stale(call) end
if not entry then
  allow_when_full(tombstones)
  if is_gone(answer) then
    fence(call, name, fences)
    if id and redis.call('ZREM', dead, RECORDLESS .. id) == 1 then
      redis.call('HDEL', errors, id)
      answer = 'done ' .. id
    end
  end
  return end_call(call, answer, answers, answers_old, fences, fences_old, meta)
end

local now = math.floor(call.now_us / 1000)
local record, header_end = entry.record, entry.header_end
local template = template_of(record, header_end)
local line = lines_for(record, header_end, templates, {})
local message = line ~= nil and message_of(record, header_end, id, line) or ''
local how = entry.claim and entry.claim.uncertain and 'u' or 'c'

-- Nothing is rolled back: all that can fail comes before the record goes.
check_types({tags}, {template_uses, fences, holders})
if owes then check_types({outbox}, {outbox_messages}) end
local rotates = is_full(tombstones, tombstones_old, 1)
allow_when_full(tombstones)
redis.call('ZREM', due, '')
local leaving = {
  ids = {id}, place = entry.place, members = {entry.there}, claimed = entry.claim, failed = entry.failed,
  shared = {},
}
if template then leaving.shared[template] = 1 end
note_extras(leaving, id, entry.member, record, header_end)
fence(call, id, fences)
for _, one in ipairs(leaving.keyed or {}) do fence(call, name_of_key(one.key), fences) end
local reply = end_call(call, (how == 'c' and 'done ' or 'uncertain ') .. id, answers, answers_old, fences,
  fences_old, meta, {whole(call.now_us), message})
if owes then owe(outbox, outbox_messages, call, id, how, message, 'cancelled') end
depart(leaving, how, now, keys)
past.write(history)
-- It is done, and its caller is told so, also where he may not begin another generation; whoever
-- hands over will.
if rotates and type(redis.pcall('UNLINK', tombstones_old)) ~= 'table' then
  redis.pcall('RENAME', tombstones, tombstones_old)
end
return reply
