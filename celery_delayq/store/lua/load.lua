--[[ load: keep entries that were dumped, as they were; each is kept, or refused, by itself.

KEYS[1]   due              ZSET  member -> due time, ms
KEYS[2]   relay            ZSET  member -> due time, ms
KEYS[3]   dead             ZSET  member -> since when, ms
KEYS[4]   refused          ZSET  member -> next try, ms
KEYS[5]   parked           ZSET  lane, due time, kind, member -> 0
KEYS[6]   records          HASH  id -> record
KEYS[7]   holders          HASH  key -> id of the entry that has it
KEYS[8]   tags             ZSET  tag, NUL, member -> 0
KEYS[9]   templates        HASH  name -> template
KEYS[10]  template_uses    HASH  name -> how many records share the template
KEYS[11]  claims           HASH  id -> claim
KEYS[12]  errors           HASH  id -> what went wrong with it last
KEYS[13]  tombstones       HASH  id -> tombstone of what left
KEYS[14]  tombstones_old   HASH  the same, older
KEYS[15]  wake             CHANNEL  where scanners are told to look
KEYS[16]  timer            STRING  which scanner is up next, and when
KEYS[17]  answers          HASH  operation -> answer
KEYS[18]  answers_old      HASH  the same, older
KEYS[19]  fences           HASH  id -> when a call left no entry under it, us
KEYS[20]  fences_old       HASH  the same, older
KEYS[21]  outbox           ZSET  id whose REVOKED is to be stored -> from when on a scanner does it, ms
KEYS[22]  outbox_messages  HASH  id -> what is owed for it
KEYS[23]  meta             HASH  seq -> last insertion number; timeout and turned, see prelude/call.lua

ARGV[1]  operation    names the call
ARGV[2]  issued       when this request was made, us by Redis's clock
ARGV[3]  deadline     when the call ends, us by Redis's clock
ARGV[4...] entries    of each entry, one after the other:
         id           the task's id
         due          its due time, unix ms
         created      when it was scheduled, us, 16 digits
         destination  the record's header, from its second byte
         body         the record's part from the flags on
         template     the template that `body` shares; empty if it comes with an entry before this one
         place        waiting | refused | dead
         ms           refused: its next try, dead: since when, unix ms; else 0
         claim        empty; or attempts made, refusals, and 1 where it may have been delivered, else 0, colons between
         error        what went wrong with it last; or empty
         named        1: its key names it; or 0

Returns  {now in us, 'join' | 'late' | 'stale'}: all refused, see prelude/call.lua; or {now in us, 'answer', text}. The
         text has a word of each entry: loaded; or, where it is not written: here, it is here already, by its
         time of scheduling; left, what had its id left after that; taken, its id is another entry's; held, its key
         is, and after a colon the id of that one
Cost     O(log N) an entry; the caller bounds entries and bytes
Keeps    what is there; an id has one record and one place, a key has one entry that waits
]]
local operation, issued, deadline = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local FIRST, FIELDS = 4, 11 -- of an entry

local call, ended = begin_call(operation, issued, deadline, answers, answers_old, meta)
if not call then return ended end

-- All that can fail comes before the first write, which is that of `meta`: nothing is rolled back.
local promise = promise_of(timer)
local brought = {} -- templates that came along, be their entry refused or not
for at = FIRST, #ARGV, FIELDS do
  local name, template = name_in(ARGV[at + 4]), ARGV[at + 5]
  if name and template ~= '' then brought[name] = template end
  if is_fenced(call, ARGV[at], issued, fences, fences_old) then return stale(call) end
  local extras = extras_of_body(ARGV[at + 4])
  if extras and extras.key and is_key_fenced(call, name_of_key(extras.key), issued, fences, fences_old) then
    return stale(call)
  end
end

local leftovers = redis.call('HLEN', claims) + redis.call('HLEN', errors) > 0
local is_owing = redis.call('ZCARD', outbox) > 0
local waiting = {due, relay, refused, parked = parked}
local now = math.floor(call.now_us / 1000)
local changed, here, earliest = seven_bytes(call.now_us), {}, math.huge

-- Why an entry is not written because of its id; or nil.
local function met(id, created)
  local own = redis.call('HGET', records, id)
  local header_end = header_end_of(own)
  if header_end and sub(own, header_end + 20, header_end + 35) == created then return 'here' end
  local stone = find_tombstone(tombstones, tombstones_old, id)
  -- What is still to come was told by a clock that is ahead of this one: it tells nothing of what was first.
  local created_ms = math.floor(tonumber(created) / 1000)
  -- Also where its id has an entry again: it may have scheduled itself anew when it ran.
  if stone and (tonumber(sub(stone, 2)) >= created_ms or created_ms > now) then return 'left' end
  return own and 'taken' or nil
end

-- The id of another entry that waits under a key; or nil.
local function holder_of(key, id)
  local other = redis.call('HGET', holders, key)
  local record = other and other ~= id and redis.call('HGET', records, other)
  local header_end = header_end_of(record)
  local extras = header_end and extras_of(record, header_end)
  if not extras or extras.key ~= key then return nil end
  return place_of(waiting, member_of(record, header_end, other), record, header_end) and other
end

local function write_extras(extras, id, member, takes_key)
  if not extras then return end
  index_extras({key = takes_key and extras.key, tags = extras.tags}, id, member, holders, tags)
end

-- The count before what it counts: what Redis stops half-way leaves too much, and not too little.
local function share(name)
  redis.call('HINCRBY', template_uses, name, 1)
  if not here[name] then redis.call('HSET', templates, name, brought[name]) end
  here[name] = true
end

local function load_one(at)
  local id, due_ms, created, destination, body, _, place, ms, claim, error, named = unpack(ARGV, at, at + 10)
  local why = met(id, created)
  local extras = extras_of_body(body)
  local key = extras and extras.key
  local holder = not why and key and named == '1' and holder_of(key, id)
  if holder and place ~= 'dead' then why = 'held' .. quoted(holder) end
  if why then return why end

  -- The first write: one that a full Redis refuses. After one that frees memory it would let all pass.
  local size = #destination + #body + 50
  local order = six_bytes(take_numbers(1, meta, records) * 2 + (size > SMALL and 1 or 0))
  local name = name_in(body)
  if name then share(name) end
  local index = sub(destination, 1, 1) == 'L' and due or relay
  local score = place == 'waiting' and due_ms or ms
  if place ~= 'waiting' then index = place == 'dead' and dead or refused end
  -- The place before its record, so that no record is without one.
  redis.call('ZADD', index, score, order .. id)
  write_extras(extras, id, order .. id, named == '1' and not holder)
  if leftovers then
    redis.call('HDEL', claims, id)
    redis.call('HDEL', errors, id)
    redis.call('ZREM', dead, RECORDLESS .. id)
  end
  if claim ~= '' then redis.call('HSET', claims, id, claim .. ':0:') end
  if error ~= '' then redis.call('HSET', errors, id, error) end
  redis.call('HSET', records, id, record_of(destination, order, due_ms, created, changed, body))
  -- It is no longer revoked.
  if is_owing then
    redis.call('HDEL', outbox_messages, id)
    redis.call('ZREM', outbox, id)
  end
  if place ~= 'dead' then earliest = math.min(earliest, tonumber(score)) end
  return 'loaded'
end

local told, wrote = {}, false
for at = FIRST, #ARGV, FIELDS do
  told[#told + 1] = load_one(at)
  wrote = wrote or told[#told] == 'loaded'
end
if earliest < math.huge then wake_for(earliest, now, wake, timer, promise) end
-- Nothing was written, so nothing is refused for want of memory.
if not wrote then allow_when_full(templates) end
return end_call(call, table.concat(told, ' '), answers, answers_old, fences, fences_old, meta)
