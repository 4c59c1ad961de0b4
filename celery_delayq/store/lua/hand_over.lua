--[[ hand_over: hand over what is due and bound for lists in this Redis, at most one batch.

KEYS[1]   due             ZSET  member -> due time, ms
KEYS[2]   relay           ZSET  member -> due time, ms
KEYS[3]   leased          ZSET  member -> lease deadline, ms
KEYS[4]   dead            ZSET  member -> since when, ms
KEYS[5]   records         HASH  id -> record
KEYS[6]   templates       HASH  name -> template
KEYS[7]   template_uses   HASH  name -> how many records share the template
KEYS[8]   dead_reasons    HASH  id -> why it is dead
KEYS[9]   tombstones      HASH  id -> tombstone of what left
KEYS[10]  tombstones_old  HASH  the same, older
KEYS[11]  scanners        ZSET  scanner -> ms until which its last heartbeat counts
KEYS[12]  timer           STRING  which scanner has its timer set for the next head, and when

ARGV[1]  scanner    who asks
ARGV[2]  alive_ms   for how long this heartbeat counts; 0: the last one is young enough
ARGV[3]  limit      most entries to hand over, 1..1000
ARGV[4]  max_bytes  stop after the entry that reaches so many bytes, > 0

Returns  {now in us, handed over, heads of due, relay and leased in ms or -1, 1 if the caller is to be up
         for the earliest of them, else 0, {id, reason, ...} dead}
Cost     O(log N + M log N), M <= limit
Keeps    an entry is in `due` or in its list, never in both, never in neither
]]
local due, relay, leased, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local records, templates, template_uses, dead_reasons = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local tombstones, tombstones_old, scanners, timer = KEYS[9], KEYS[10], KEYS[11], KEYS[12]
local scanner, alive_ms, limit = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local max_bytes = tonumber(ARGV[4])
local OVERDUE = 100 -- ms after which a scanner that was to be up is taken for dead

local now_us = clock_us()
local now = math.floor(now_us / 1000)

allow_when_full(records)
if alive_ms > 0 then
  -- Scanners silent for an hour are forgotten; until then `status` can tell of them.
  redis.call('ZREMRANGEBYSCORE', scanners, '-inf', whole(now - 3600000))
  redis.call('ZADD', scanners, whole(now + alive_ms), scanner)
end

local members, fresh = due_members(due, now, limit)
local stamp = 'h' .. whole(now) -- of a tombstone, see tombstone_of: the same for the whole batch
local lists, cache, killed = {}, {}, {}
local taken, bytes = 0, 0

local function die(member, reason)
  bury(dead, dead_reasons, now, member, reason)
  killed[#killed + 1] = id_of(member)
  killed[#killed + 1] = reason
end

local function list_for(key)
  for _, list in ipairs(lists) do
    if list.key == key then return list end
  end
  local list = {key = key, size = 0, messages = {}, ids = {}, members = {}, stones = {}, shared = {}}
  lists[#lists + 1] = list
  return list
end

-- Neighbours mostly go to the same list, so headers are compared, not parsed again.
local prefix, header_end, list = false, 0, nil

local function take(member, id, record)
  local defect, message, name
  if not record or sub(record, 1, header_end) ~= prefix or not is_sound(record, header_end) then
    local found
    found, defect = header_end_of(record)
    if not found then
      bytes = bytes + #(record or '')
      return die(member, defect)
    end
    prefix, header_end = sub(record, 1, found), found
    list = list_for(destination_of(record, found))
  end
  message, defect, name = message_of(record, header_end, id, templates, cache)
  if not message then return die(member, defect) end
  bytes = bytes + #message
  local at, stones = list.size + 1, list.stones
  list.size = at
  list.messages[at], list.ids[at], list.members[at] = message, id, member
  stones[at * 2 - 1], stones[at * 2] = id, tombstone_of(stamp, record, header_end)
  if name then list.shared[name] = (list.shared[name] or 0) + 1 end
end

-- Records are read many at a time, which is less work than one by one. So their sizes come first: what
-- is read and does not fit any more would be read again.
local function read_ahead()
  local ids, size = {}, bytes
  for at = taken + 1, #members do
    local id = id_of(members[at])
    ids[#ids + 1] = id
    size = size + redis.call('HSTRLEN', records, id)
    if size >= max_bytes then break end
  end
  return ids, redis.call('HMGET', records, unpack(ids))
end

local rotates = false
if #members > 0 then
  rotates = is_full(tombstones, tombstones_old, #members)
  check_types({dead}, {template_uses, dead_reasons})
  -- A step that changes nothing, to find out before anything is pushed whether it is allowed.
  redis.call('ZREMRANGEBYRANK', due, 1, 0)
  if fresh > 0 then redis.call('ZREM', due, '') end
end

while taken < #members and bytes < max_bytes do
  local ids, found = read_ahead()
  for at, id in ipairs(ids) do
    if bytes >= max_bytes then break end
    taken = taken + 1
    take(members[taken], id, found[at])
  end
end

-- The new place is written before the old one is cleared: a script that Redis stops half-way is not
-- rolled back, and must not lose what it pushed.
local handed_over = 0
for _, full in ipairs(lists) do
  if full.size > 0 then redis.call('HSET', tombstones, unpack(full.stones)) end
  local pushed = full.size > 0 and redis.pcall('LPUSH', full.key, unpack(full.messages))
  if type(pushed) == 'table' then
    redis.call('HDEL', tombstones, unpack(full.ids))
    for _, member in ipairs(full.members) do
      die(member, full.key .. ': ' .. pushed.err)
    end
  elseif pushed then
    handed_over = handed_over + full.size
    redis.call('HDEL', records, unpack(full.ids))
    for name, count in pairs(full.shared) do
      drop_template(templates, template_uses, name, count)
    end
  end
end
remove_taken(due, members, fresh, taken)
if rotates then rotate(tombstones, tombstones_old) end

-- One scanner is up for the head; were it all of them, a hundred scanners would call a hundred times
-- for each due time. Another sets its timer where none is set, or one for later, or one that is overdue.
local heads = {head_of(due), head_of(relay), head_of(leased)}
local next_head = math.huge
for _, head in ipairs(heads) do
  if head >= 0 then next_head = math.min(next_head, head) end
end
local at, by = string.match(redis.call('GET', timer) or '', '^(%d+):(.*)$')
local free = not at or by == scanner or tonumber(at) > next_head or tonumber(at) < now - OVERDUE
local has_timer = free and next_head < math.huge
if has_timer then
  redis.call('SET', timer, whole(next_head) .. ':' .. scanner)
elseif by == scanner then
  redis.call('DEL', timer)
end

return {now_us, handed_over, heads[1], heads[2], heads[3], has_timer and 1 or 0, killed}
