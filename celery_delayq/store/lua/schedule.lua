--[[ schedule: keep entries until they are due; each is scheduled, or refused, by itself.

KEYS[1]   due             ZSET  member -> due time, ms
KEYS[2]   relay           ZSET  member -> due time, ms
KEYS[3]   leased          ZSET  member -> lease deadline, ms
KEYS[4]   dead            ZSET  member -> since when, ms
KEYS[5]   records         HASH  id -> record
KEYS[6]   templates       HASH  name -> template
KEYS[7]   template_uses   HASH  name -> how many records share the template
KEYS[8]   claims          HASH  id -> claim
KEYS[9]   dead_reasons    HASH  id -> why it is dead
KEYS[10]  wake            CHANNEL  where scanners are told to look
KEYS[11]  timer           STRING  which scanner is up next, and when
KEYS[12]  answers         HASH  operation -> answer
KEYS[13]  answers_old     HASH  the same, older
KEYS[14]  fences          HASH  id -> when a call left no entry under it, us
KEYS[15]  fences_old      HASH  the same, older
KEYS[16]  outbox          ZSET  id whose REVOKED is to be stored -> from when on a scanner does it, ms
KEYS[17]  outbox_messages HASH  id -> what is owed for it
KEYS[18]  meta            HASH  seq -> last insertion number; timeout and turned, see prelude/call.lua

ARGV[1]  operation    names the call
ARGV[2]  issued       when this request was made, us by Redis's clock
ARGV[3]  deadline     when the call ends, us by Redis's clock
ARGV[4]  latest       greatest due time allowed, unix ms
ARGV[5]  supersede    1: the caller is this very task, running: an entry that may have been delivered gives way
ARGV[6...] entries    of each entry, one after the other:
         id           the task's id
         mode         at | after: what `ms` counts from
         ms           unix time, or milliseconds from now, >= 0
         destination  the record's header, from its second byte
         body         the record's part from the flags on
         template     the template that `body` shares; empty if it comes with an entry before this
                      one, or the caller believes it is here

Returns  {now in us, 'join' | 'late' | 'stale'}: all refused, see prelude/call.lua; {now in us, 'templates'}:
         all refused, as those that are shared have to be sent along; or {now in us, 'answer', text}: of each
         entry its due time, and a blank before the next; or, where nothing of it was written: -1, the id is
         scheduled already; -2, due past `latest`
Cost     O(log N) an entry; the caller bounds entries and bytes
Keeps    an id has one record and one place; a repeated operation changes nothing
]]
local due, relay, leased, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local records, templates, template_uses = KEYS[5], KEYS[6], KEYS[7]
local claims, dead_reasons, wake, timer = KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local answers, answers_old, fences, fences_old = KEYS[12], KEYS[13], KEYS[14], KEYS[15]
local outbox, outbox_messages, meta = KEYS[16], KEYS[17], KEYS[18]
local operation, issued, deadline = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local latest, supersede = tonumber(ARGV[4]), ARGV[5] == '1'
local CONFLICT, LATE = -1, -2
local FIELDS = 6 -- of an entry
local count = (#ARGV - 5) / FIELDS

local call, ended = begin_call(operation, issued, deadline, answers, answers_old, meta)
if not call then return ended end

-- All that can fail comes before the first write, which is that of `meta`: nothing is rolled back.
local promise = promise_of(timer)
local leftovers = redis.call('HLEN', claims) + redis.call('HLEN', dead_reasons) > 0
local is_owing = redis.call('ZCARD', outbox) > 0
local has_fences = redis.call('HLEN', fences) + redis.call('HLEN', fences_old) > 0
check_types({due, relay}, {templates, template_uses})
if is_owing then check_types({}, {outbox_messages}) end
-- A single entry reads these before it writes; the second of many, after the first has written.
if supersede or count > 1 or leftovers then check_types({leased, dead}, {}) end

-- Whether all templates that are shared are here, or come along.
local here = {} -- name of a template -> true
local brought = {} -- templates that came along, be their entry refused or not
for at = 6, #ARGV, FIELDS do
  local name, template = name_in(ARGV[at + 4]), ARGV[at + 5]
  if name and template ~= '' then brought[name] = template end
  if name and not here[name] then
    here[name] = redis.call('HEXISTS', templates, name) == 1
    if not here[name] and not brought[name] then return {call.now_us, 'templates'} end
  end
  if has_fences and is_fenced(call, ARGV[at], issued, fences, fences_old) then return stale(call) end
end

local now, rounded_up = math.floor(call.now_us / 1000), math.ceil(call.now_us / 1000)
local created, changed_now = string.format('%016.0f', call.now_us), seven_bytes(call.now_us)
local sharing = {} -- name of a template -> uses that are counted, and not made yet
local earliest = math.huge -- due time of what was written
local seq -- last insertion number used

-- Count a use of a template before it is made, and with the first those of all that may follow: a
-- script that Redis stops half-way must not leave too low a count.
local function count_use(name, most)
  if not sharing[name] then
    redis.call('HINCRBY', template_uses, name, most)
    sharing[name] = most
  end
  sharing[name] = sharing[name] - 1
end

-- Whether the running task may be a copy of this entry. What has not left is another task.
local function may_be_delivered(id, place)
  if not place or place == leased then return true end
  return place ~= due and parse_claim(redis.call('HGET', claims, id)).uncertain
end

-- Whoever holds the lease of the earlier entry must not acknowledge this one.
local function revoke_claim(id)
  local claim = parse_claim(redis.call('HGET', claims, id))
  claim.uncertain = true
  end_claim(claims, id, claim)
end

local function next_order(size)
  if not seq then
    seq = redis.call('HINCRBY', meta, 'seq', count) - count
  end
  seq = seq + 1
  return six_bytes(seq * 2 + (size > SMALL and 1 or 0))
end

local function schedule(at, id, mode, ms, destination, body)
  local when = mode == 'after' and rounded_up + ms or tonumber(ms)
  if when > latest then return LATE end
  local text = mode == 'after' and whole(when) or ms

  local present, header_end, place
  if redis.call('HEXISTS', records, id) == 1 then
    if not supersede then return CONFLICT end
    present = redis.call('HGET', records, id)
    header_end = header_end_of(present)
    place = header_end and place_of({due, relay, leased, dead}, member_of(present, header_end, id))
    if not header_end or not may_be_delivered(id, place) then return CONFLICT end
  end

  -- The first write: one that a full Redis refuses. After one that frees memory it would let all pass.
  local order = next_order(#destination + #body + 50)
  local name = name_in(body)
  if name then
    count_use(name, (#ARGV + 1 - at) / FIELDS)
    if not here[name] then
      redis.call('HSET', templates, name, brought[name])
      here[name] = true
    end
  end

  local index = sub(destination, 1, 1) == 'L' and due or relay
  local changed = present and changed_next(present, header_end, call.now_us) or changed_now
  -- The place before its record, so that no record is without one.
  redis.call('ZADD', index, text, order .. id)
  if place == leased then revoke_claim(id) end
  redis.call('HSET', records, id, record_of(destination, order, text, created, changed, body))
  if leftovers then
    redis.call('HDEL', claims, id)
    redis.call('HDEL', dead_reasons, id)
    redis.call('ZREM', dead, RECORDLESS .. id)
  end
  -- It is no longer revoked.
  if is_owing then
    redis.call('HDEL', outbox_messages, id)
    redis.call('ZREM', outbox, id)
  end
  if present then
    local leaving = {ids = {id}, place = place, members = {member_of(present, header_end, id)}, shared = {}}
    local old = template_of(present, header_end)
    if old then leaving.shared[old] = 1 end
    depart(leaving, nil, nil, {templates = templates, template_uses = template_uses})
  end
  earliest = math.min(earliest, when)
  return when
end

local told, taken = {}, {}
for at = 6, #ARGV, FIELDS do
  local id = ARGV[at]
  -- An id that comes twice: the second is refused whatever became of the first.
  local one = taken[id] and CONFLICT
    or schedule(at, id, ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4])
  taken[id] = one ~= LATE
  told[#told + 1] = one
end
for name, unused in pairs(sharing) do
  if unused > 0 then drop_template(templates, template_uses, name, unused) end
end
if earliest < math.huge then wake_for(earliest, now, wake, timer, promise) end
-- Nothing was written, so nothing is refused for want of memory.
if not seq then allow_when_full(templates) end
-- One text: a client takes longer to read hundreds of replies than a script to write their entries.
return end_call(call, table.concat(told, ' '), answers, answers_old, fences, fences_old, meta)
