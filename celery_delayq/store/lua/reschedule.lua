--[[ reschedule: give an entry that has not left yet another due time; its id stays.

KEYS[1]   due             ZSET  member -> due time, ms
KEYS[2]   relay           ZSET  member -> due time, ms
KEYS[3]   leased          ZSET  member -> lease deadline, ms
KEYS[4]   dead            ZSET  member -> since when, ms
KEYS[5]   records         HASH  id -> record
KEYS[6]   claims          HASH  id -> claim
KEYS[7]   dead_reasons    HASH  id -> why it is dead
KEYS[8]   tombstones      HASH  id -> tombstone of what left
KEYS[9]   tombstones_old  HASH  the same, older
KEYS[10]  wake            CHANNEL  where scanners are told to look
KEYS[11]  timer           STRING  which scanner is up next, and when
KEYS[12]  answers         HASH  operation -> answer
KEYS[13]  answers_old     HASH  the same, older
KEYS[14]  fences          HASH  id -> when a call left no entry under it, us
KEYS[15]  fences_old      HASH  the same, older
KEYS[16]  meta            HASH  timeout -> longest call, ms; turned -> when the generations were, ms

ARGV[1]  operation  names the call
ARGV[2]  issued     when this request was made, us by Redis's clock
ARGV[3]  deadline   when the call ends, us by Redis's clock
ARGV[4]  id         the task's id
ARGV[5]  mode       at | after | by: what `ms` counts from (by: the present due time)
ARGV[6]  ms         unix time, or milliseconds, negative allowed with `by`
ARGV[7]  latest     greatest due time allowed, unix ms

Returns  {now in us, 'join' | 'late' | 'stale'}: refused, see prelude/call.lua; or {now in us, 'answer',
         'done' | 'uncertain' and the due time | 'too_late' (past `latest`, nothing was written) |
         'in_flight' | 'handed_over' | 'not_found' | 'unreadable' and why}
         uncertain: done, but an earlier attempt may have delivered it
Cost     O(log N + size of the record)
Keeps    an entry that left is not brought back; one under a lease stays
]]
local due, relay, leased, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local records, claims, dead_reasons = KEYS[5], KEYS[6], KEYS[7]
local tombstones, tombstones_old, wake, timer = KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local answers, answers_old, fences, fences_old = KEYS[12], KEYS[13], KEYS[14], KEYS[15]
local meta = KEYS[16]
local operation, issued, deadline = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local id, mode, ms, latest = ARGV[4], ARGV[5], ARGV[6], tonumber(ARGV[7])

local call, ended = begin_call(operation, issued, deadline, answers, answers_old, meta)
if not call then return ended end

local function answered(answer)
  return end_call(call, answer, answers, answers_old, fences, fences_old, meta)
end

local record, header_end, member, place, _, claim =
  entry_of(id, {due, relay, leased, dead}, records, claims, dead_reasons, tombstones, tombstones_old)
if record and is_overtaken(call, issued, changed_of(record, header_end)) then return stale(call) end
if not record then
  local answer = header_end
  allow_when_full(records)
  if is_gone(answer) then fence(call, id, fences) end
  return answered(answer)
end

local when, text = tonumber(ms), ms
if mode == 'after' then
  when = math.ceil(call.now_us / 1000) + when
  text = whole(when)
elseif mode == 'by' then
  when = math.max(0, due_of(record, header_end) + when)
  text = whole(when)
end

local index = sub(record, 2, 2) == 'L' and due or relay
local promise = promise_of(timer)

allow_when_full(records)
if when > latest then return answered('too_late') end
redis.call('HSET', records, id, with_due(record, header_end, text, call.now_us))
put_back(index, text, place, member, claims, claim)
if place == dead then redis.call('HDEL', dead_reasons, id) end
wake_for(when, math.floor(call.now_us / 1000), wake, timer, promise)
return answered((claim and claim.uncertain and 'uncertain ' or 'done ') .. text)
