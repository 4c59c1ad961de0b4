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
KEYS[10]  tombstones      HASH  id -> tombstone of what left
KEYS[11]  tombstones_old  HASH  the same, older
KEYS[12]  wake            LIST  at most one token
KEYS[13]  meta            HASH  seq -> last insertion number

ARGV[1]  latest       greatest due time allowed, unix ms
ARGV[2]  operation    8 bytes, the same when the caller repeats a call whose reply it lost
ARGV[3]  again        1: an earlier call may have run; what left is searched for the operation
ARGV[4]  supersede    1: the caller is this very task, running: an entry that may have been delivered gives way
ARGV[5...] entries    of each entry, one after the other:
         id           the task's id
         mode         at | after: what `ms` counts from
         ms           unix time, or milliseconds from now, >= 0
         destination  the record's header, from its second byte
         body         the record's part from the flags on
         template     the template that `body` shares; empty if it comes with an entry before this
                      one, or the caller believes it is here

Returns  one text: of each entry its due time, and a blank before the next; or, where nothing of it was
         written: -1, the id is scheduled already; -2, due past `latest`; -3, its template has to be sent along
Cost     O(log N) an entry; the caller bounds entries and bytes
Keeps    an id has one record and one place; a repeated operation changes nothing
]]
local due, relay, leased, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local records, templates, template_uses = KEYS[5], KEYS[6], KEYS[7]
local claims, dead_reasons, tombstones, tombstones_old = KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local wake, meta = KEYS[12], KEYS[13]
local latest, operation, again, supersede = tonumber(ARGV[1]), ARGV[2], ARGV[3] == '1', ARGV[4] == '1'
local CONFLICT, LATE, NO_TEMPLATE = -1, -2, -3
local FIELDS = 6

-- All that can fail comes before the first write, which is that of `meta`: nothing is rolled back.
local heads = {[due] = head_of(due), [relay] = head_of(relay)}
local token_waits = redis.call('LLEN', wake) > 0
local leftovers = redis.call('HLEN', claims) + redis.call('HLEN', dead_reasons) > 0
check_types({}, {templates, template_uses})
-- A single entry reads these before it writes; the second of many, after the first has written.
if #ARGV > 4 + FIELDS then check_types({leased, dead}, {}) end
if again or supersede then check_types({leased, dead}, {tombstones, tombstones_old}) end

local now_us = clock_us()
local now = math.floor(now_us / 1000)
local rounded_up = math.ceil(now_us / 1000)
local created, changed_now = string.format('%016.0f', now_us), six_bytes(now)
local sharing = {} -- name of a template that is here -> uses that are counted, and not made yet
local brought = {} -- templates that came along, be their entry refused or not
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

-- Take back what is left of an earlier entry under this id.
local function clear(id, record, header_end, place)
  if place then redis.call('ZREM', place, member_of(record, header_end, id)) end
  local shared = template_of(record, header_end)
  if shared then drop_template(templates, template_uses, shared, 1) end
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

local function next_order()
  if not seq then
    local most = (#ARGV - 4) / FIELDS
    seq = redis.call('HINCRBY', meta, 'seq', most) - most
  end
  seq = seq + 1
  return six_bytes(seq)
end

local function schedule(at, id, mode, ms, destination, body, template)
  local name = name_in(body)
  if template ~= '' then brought[name] = template end

  local when = mode == 'after' and rounded_up + ms or tonumber(ms)
  if when > latest then return LATE end
  local text = mode == 'after' and whole(when) or ms

  local tombstone = again and find_tombstone(tombstones, tombstones_old, id)
  if tombstone and sub(tombstone, -8) == operation then return tonumber(sub(tombstone, 15, 27)) end

  local present, header_end, place = redis.call('HGET', records, id), nil, nil
  if present then
    header_end = header_end_of(present)
    place = header_end and place_of({due, relay, leased, dead}, member_of(present, header_end, id))
    local repeated = header_end and operation_of(present, header_end) == operation
    if repeated and place then return due_of(present, header_end) end
    if not header_end then return CONFLICT end
    if not repeated and not (supersede and may_be_delivered(id, place)) then return CONFLICT end
  end

  local known = not name or sharing[name] or redis.call('HEXISTS', templates, name) == 1
  if not known and not brought[name] then return NO_TEMPLATE end

  -- The first write: one that a full Redis refuses. After one that frees memory it would let all pass.
  local order = next_order()
  if name then
    count_use(name, (#ARGV + 1 - at) / FIELDS)
    if not known then redis.call('HSET', templates, name, brought[name]) end
  end

  local index = sub(destination, 1, 1) == 'L' and due or relay
  local changed = present and six_bytes(changed_next(present, header_end, now)) or changed_now
  -- The place before its record, so that no record is without one.
  redis.call('ZADD', index, text, order .. id)
  if place == leased then revoke_claim(id) end
  redis.call('HSET', records, id, record_of(destination, order, text, created, changed, operation, body))
  if leftovers then
    redis.call('HDEL', claims, id)
    redis.call('HDEL', dead_reasons, id)
  end
  if present then clear(id, present, header_end, place) end
  if not token_waits and (heads[index] < 0 or when < heads[index]) then
    redis.call('LPUSH', wake, '1')
    token_waits = true
  end
  return when
end

local answers, taken = {}, {}
for at = 5, #ARGV, FIELDS do
  local id = ARGV[at]
  -- An id that comes twice: by its operation, the first one's entry would look like the second's.
  local answer = taken[id] and CONFLICT
    or schedule(at, id, ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4], ARGV[at + 5])
  taken[id] = answer ~= LATE
  answers[#answers + 1] = answer
end
for name, unused in pairs(sharing) do
  if unused > 0 then drop_template(templates, template_uses, name, unused) end
end
-- One text: a client takes longer to read hundreds of replies than a script to write their entries.
return table.concat(answers, ' ')
