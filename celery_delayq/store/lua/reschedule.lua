--[[ reschedule: give an entry that has not left yet another due time; its id stays.

KEYS[1]   due             ZSET  member -> due time, ms
KEYS[2]   relay           ZSET  member -> due time, ms
KEYS[3]   leased          ZSET  member -> lease deadline, ms
KEYS[4]   dead            ZSET  member -> since when, ms
KEYS[5]   refused         ZSET  member -> next try, ms
KEYS[6]   parked          ZSET  lane, due time, kind, member -> 0
KEYS[7]   records         HASH  id -> record
KEYS[8]   holders         HASH  key -> id of the entry that has it
KEYS[9]   claims          HASH  id -> claim
KEYS[10]  errors          HASH  id -> what went wrong with it last
KEYS[11]  tombstones      HASH  id -> tombstone of what left
KEYS[12]  tombstones_old  HASH  the same, older
KEYS[13]  wake            CHANNEL  where scanners are told to look
KEYS[14]  timer           STRING  which scanner is up next, and when
KEYS[15]  answers         HASH  operation -> answer
KEYS[16]  answers_old     HASH  the same, older
KEYS[17]  fences          HASH  id -> when a call left no entry under it, us
KEYS[18]  fences_old      HASH  the same, older
KEYS[19]  meta            HASH  timeout -> longest call, ms; turned -> when the generations were, ms

ARGV[1]  operation  names the call
ARGV[2]  issued     when this request was made, us by Redis's clock
ARGV[3]  deadline   when the call ends, us by Redis's clock
ARGV[4]  target     who is meant: see prelude/entry.lua
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
local operation, issued, deadline = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local target, mode, ms, latest = ARGV[4], ARGV[5], ARGV[6], tonumber(ARGV[7])
local places = {due, relay, leased, dead, refused, parked = parked}

local call, ended = begin_call(operation, issued, deadline, answers, answers_old, meta)
if not call then return ended end

local function answered(answer)
  return end_call(call, answer, answers, answers_old, fences, fences_old, meta)
end

local id, name = meant_by(target, holders)
local entry, why = entry_of(id, name, places, keys)
if entry and is_late_for(call, entry, name, issued, fences, fences_old) then return stale(call) end
if not entry then
  allow_when_full(records)
  if is_gone(why) then fence(call, name, fences) end
  return answered(why)
end
local record, header_end = entry.record, entry.header_end

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
take_key(record, header_end, id, keys)
put_back(index, text, entry.place, entry.member, claims, entry.claim, entry.there)
if entry.failed then redis.call('HDEL', errors, id) end
wake_for(when, math.floor(call.now_us / 1000), wake, timer, promise)
return answered((entry.claim and entry.claim.uncertain and 'uncertain ' or 'done ') .. text)
