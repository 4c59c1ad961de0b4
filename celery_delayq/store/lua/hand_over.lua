--[[ hand_over: hand over what is due and bound for lists in this Redis, at most one batch.

KEYS[1]   due             ZSET  member -> due time, ms
KEYS[2]   relay           ZSET  member -> due time, ms
KEYS[3]   leased          ZSET  member -> lease deadline, ms
KEYS[4]   dead            ZSET  member -> since when, ms
KEYS[5]   refused         ZSET  member -> next try, ms
KEYS[6]   parked          ZSET  lane, due time, kind, member -> 0
KEYS[7]   records         HASH  id -> record
KEYS[8]   holders         HASH  key -> id of the entry that has it
KEYS[9]   tags            ZSET  tag, NUL, member -> 0
KEYS[10]  templates       HASH  name -> template
KEYS[11]  template_uses   HASH  name -> how many records share the template
KEYS[12]  claims          HASH  id -> claim; of these entries, how often their list refused them
KEYS[13]  errors          HASH  id -> what went wrong with it last
KEYS[14]  tombstones      HASH  id -> tombstone of what left
KEYS[15]  tombstones_old  HASH  the same, older
KEYS[16]  scanners        ZSET  scanner -> ms until which its last heartbeat counts
KEYS[17]  timer           STRING  which scanner is up next, and when
KEYS[18]  fences          HASH  id -> when a call left no entry under it, us
KEYS[19]  meta            HASH  timeout -> longest call, ms

ARGV[1]  scanner       who asks
ARGV[2]  alive_ms      for how long this heartbeat counts; 0: the last one is young enough
ARGV[3]  limit         most entries to hand over, 1..1000
ARGV[4]  max_bytes     stop after the entry that reaches so many bytes, > 0
ARGV[5]  max_refusals  refusals of its list after which an entry is dead, > 0
ARGV[6]  longest_ms    longest wait between two attempts at an entry that was refused, > 0
ARGV[7]  asleep_ms     for how long the caller sleeps at most, before it asks again; 0: it may not ask again
ARGV[8]  relay_ms      for how long the caller will not look at `relay`, >= 0

Returns  {now in us, handed over, heads of due, relay and leased in ms or -1, 1 if the caller is to be up
         for the earliest of them, else 0, {id, reason, ...} dead, {reason, how many, ...} refused by
         their lists, to be tried again}; or {now in us} alone, at a heartbeat: nothing was done, as
         the store knows no process; the caller has to join
Cost     O(log N + M log N), M <= limit
Keeps    an entry is in `due` or in its list, never in both, never in neither
]]
local scanner, alive_ms, limit = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local max_bytes, max_refusals, longest_ms = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local asleep_ms, relay_ms = tonumber(ARGV[7]), tonumber(ARGV[8])
local LATER = 9999999999999 -- ms: who promises this is up for what it is told of, and for nothing else

local now_us = clock_us()
local now = math.floor(now_us / 1000)

allow_when_full(records)
if alive_ms > 0 then
  if redis.call('HEXISTS', meta, 'timeout') == 0 then return {now_us} end
  -- Scanners silent for an hour are forgotten; until then `status` can tell of them.
  redis.call('ZREMRANGEBYSCORE', scanners, '-inf', whole(now - 3600000))
  redis.call('ZADD', scanners, whole(now + alive_ms), scanner)
end

local members, fresh = due_members(due, now, limit)
local lists, cache, killed, turned_down = {}, {}, {}, {}
local taken, bytes = 0, 0

local function die(member, reason)
  bury(dead, errors, now, member, reason)
  killed[#killed + 1] = id_of(member)
  killed[#killed + 1] = reason
end

local function list_for(key)
  for _, list in ipairs(lists) do
    if list.key == key then return list end
  end
  local list = {key = key, size = 0, messages = {}, ids = {}, members = {}, shared = {}, young = {}, leaving = {}}
  lists[#lists + 1] = list
  return list
end

local places = {due, relay, leased, dead, refused, parked = parked}
-- What neighbours mostly have in common is compared, not parsed again: the header, and from the flags on to
-- the name of the template.
local prefix, labels, header_end = false, false, 0
local list, line, name, has_extras
local messages, ids, its_members -- of that list
local recent = {}

-- Look at a record that is not like the one before; false where that was the end of it.
local function look_at(member, record)
  local found, defect = header_end_of(record)
  if is_leftover(member, record, found, places, tombstones, tombstones_old) then return false end
  local lines
  if found then lines, defect = lines_for(record, found, templates, cache) end
  if lines == nil then
    bytes = bytes + #(record or '')
    die(member, defect)
    return false
  end
  prefix, header_end = sub(record, 1, found), found
  labels = sub(record, found + 43, found + 68)
  has_extras = string.byte(labels) % EXTRAS > 0
  list, line, name = list_for(destination_of(record, found)), lines, template_of(record, found)
  messages, ids, its_members = list.messages, list.ids, list.members
  return true
end

local function take(member, id, record)
  if not record or sub(record, 1, header_end) ~= prefix or sub(record, header_end + 43, header_end + 68) ~= labels
    or string.match(record, TIMES, header_end + 7) ~= header_end + 36 then
    if not look_at(member, record) then return end
  elseif sub(record, header_end + 1, header_end + 6) ~= sub(member, 1, 6)
    and is_leftover(member, record, header_end, places, tombstones, tombstones_old) then
    return
  end
  local message, defect = message_of(record, header_end, id, line)
  if not message then return die(member, defect) end
  bytes = bytes + #message
  local at = list.size + 1
  list.size = at
  messages[at], ids[at], its_members[at] = message, id, member
  if name then list.shared[name] = (list.shared[name] or 0) + 1 end
  note_young(list.young, recent, id, record, header_end)
  if has_extras then note_extras(list.leaving, id, member, record, header_end) end
end

-- Records are read many at a time, which is less work than one by one, and no more than fit: what is read
-- and does not fit any more would be read again. Of small ones it is enough to know that they are.
local function read_ahead()
  local ids, size, count = {}, bytes, 0
  for at = taken + 1, #members do
    local id = id_of(members[at])
    count = count + 1
    ids[count] = id
    size = size + (is_large(members[at]) and redis.call('HSTRLEN', records, id) or SMALL)
    if size >= max_bytes then break end
  end
  return ids, redis.call('HMGET', records, unpack(ids))
end

-- A list that cannot be pushed to (it is of another type, a right is missing) does not make dead what
-- is bound for it: that waits in `due`, under a later score, and longer each time.
local waits = {} -- members that this was done to
local function put_off(list, reason)
  local again, counted, ids = {}, {}, {}
  for at, text in ipairs(redis.call('HMGET', claims, unpack(list.ids))) do
    local claim, member = parse_claim(text), list.members[at]
    claim.attempts, claim.refusals = claim.attempts + 1, claim.refusals + 1
    counted[#counted + 1], counted[#counted + 2] = list.ids[at], format_claim(claim)
    if claim.refusals >= max_refusals then
      die(member, reason)
    else
      again[#again + 1] = whole(now + math.min(longest_ms, 1000 * 2 ^ claim.refusals))
      again[#again + 1] = member
      waits[member] = true
    end
  end
  redis.call('HSET', claims, unpack(counted))
  if #again == 0 then return end
  redis.call('ZADD', due, unpack(again))
  turned_down[#turned_down + 1], turned_down[#turned_down + 2] = reason, #again / 2
end

local rotates = false
local known = false -- whether anything may be known of these entries from an earlier attempt
if #members > 0 then
  known = redis.call('HLEN', claims) > 0
  rotates = is_full(tombstones, tombstones_old, #members)
  recent = recent_of(now_us, meta)
  check_types({dead, tags}, {template_uses, errors, fences, holders})
  -- Steps that change nothing, to find out before anything is pushed whether they are allowed.
  redis.call('ZREMRANGEBYRANK', due, 1, 0)
  redis.call('ZREM', due, '')
  redis.call('HSET', tombstones, '', '')
  redis.call('HDEL', tombstones, '')
end

while taken < #members and bytes < max_bytes do
  local ids, found = read_ahead()
  for at = 1, #ids do
    if bytes >= max_bytes then break end
    taken = taken + 1
    take(members[taken], ids[at], found[at])
  end
end

-- The new place is written before the old one is cleared: a script that Redis stops half-way is not
-- rolled back, and must not lose what it pushed.
local handed_over = 0
for _, full in ipairs(lists) do
  fence_young(full.young, fences)
  local pushed = full.size > 0 and redis.pcall('LPUSH', full.key, unpack(full.messages))
  if type(pushed) == 'table' then
    put_off(full, full.key .. ': ' .. pushed.err)
  elseif pushed then
    handed_over = handed_over + full.size
    local leaving = full.leaving
    leaving.ids, leaving.claimed, leaving.shared = full.ids, known, full.shared
    depart(leaving, 'h', now, keys)
  end
end
if #turned_down == 0 then
  remove_taken(due, members, fresh, taken)
else
  -- By name: what waits has another rank by now.
  local gone = {}
  for at = 1, taken do
    if not waits[members[at]] then gone[#gone + 1] = members[at] end
  end
  if #gone > 0 then redis.call('ZREM', due, unpack(gone)) end
end
if rotates then rotate(tombstones, tombstones_old) end

local heads = {head_of(due), head_of(relay), head_of(leased)}

-- One scanner is up for what comes next; were it all of them, a hundred scanners would call a hundred
-- times for each due time. Another takes its place where that one was to be up later, or is overdue.
local function promised()
  local waits, next_up = {0, relay_ms, 0}, math.huge
  for at, head in ipairs(heads) do
    if head >= 0 then next_up = math.min(next_up, math.max(head, now + waits[at])) end
  end
  local promise = promise_of(timer)
  local mine = not promise or promise.by == scanner or promise.by == ''
  if not mine and promise.at <= next_up and not is_overdue(promise, now) then return 0 end
  local by, at = scanner, math.min(next_up, now + asleep_ms)
  if heads[2] >= 0 and heads[2] <= now and relay_ms == 0 then
    -- It goes to publish now, and for how long is not known; what comes meanwhile, another is told.
    by, at = stand_in(scanners, scanner, now) or scanner, LATER
  end
  redis.call('SET', timer, whole(at) .. ':' .. by)
  return at < LATER and 1 or 0
end

local has_timer = asleep_ms > 0 and promised() or 0
return {now_us, handed_over, heads[1], heads[2], heads[3], has_timer, killed, turned_down}
