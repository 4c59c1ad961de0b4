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
KEYS[10]  wake            LIST  at most one token

ARGV[1]  id      the task's id
ARGV[2]  mode    at | after | by: what `ms` counts from (by: the present due time)
ARGV[3]  ms      unix time, or milliseconds, negative allowed with `by`
ARGV[4]  latest  greatest due time allowed, unix ms

Returns  {'done' | 'uncertain', due}, {'late'} (past `latest`, nothing was written),
         {'in_flight' | 'handed_over' | 'not_found'}, or {'unreadable', why}
         uncertain: done, but an earlier attempt may have delivered it
Cost     O(log N + size of the record)
Keeps    an entry that left is not brought back; one under a lease stays
]]
local due, relay, leased, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local records, claims, dead_reasons = KEYS[5], KEYS[6], KEYS[7]
local tombstones, tombstones_old, wake = KEYS[8], KEYS[9], KEYS[10]
local id, mode, ms, latest = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])

local record, header_end, member, place, score, claim =
  entry_of(id, {due, relay, leased, dead}, records, claims, dead_reasons, tombstones, tombstones_old)
if not record then return header_end end

local when, text = tonumber(ms), ms
if mode == 'after' then
  when = math.ceil(clock_us() / 1000) + when
  text = whole(when)
elseif mode == 'by' then
  when = math.max(0, due_of(record, header_end) + when)
  text = whole(when)
end
if when > latest then return {'late'} end

local changed = changed_next(record, header_end, math.floor(clock_us() / 1000))
local index = sub(record, 2, 2) == 'L' and due or relay
-- What is only put off is no earlier than the head.
local later = place == index and when >= tonumber(score)
local token = not later and needs_token(wake, index, when)

allow_when_full(records)
redis.call('HSET', records, id, with_due(record, header_end, text, changed))
put_back(index, text, place, member, claims, claim)
if place == dead then redis.call('HDEL', dead_reasons, id) end
if token then redis.call('LPUSH', wake, '1') end
return {claim and claim.uncertain and 'uncertain' or 'done', when}
