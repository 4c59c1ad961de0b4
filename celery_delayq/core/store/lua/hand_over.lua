--[[ hand_over: deliver due entries to lists in this Redis, at most one batch.

text     scanner       the caller's name
text     store         the store's name, as the caller has joined it
number   alive_ms      how long this heartbeat counts; 0: no heartbeat is needed yet
number   limit         most entries to deliver, 1..1000
number   max_bytes     stop after the entry that reaches so many bytes, > 0
number   max_refusals  refusals of its list after which an entry is dead, > 0
number   longest_ms    longest wait between two attempts at a refused entry, > 0
number   asleep_ms     longest sleep of the caller before its next call; 0: there may be none
number   relay_ms      how long the caller will not look at `relay`, >= 0
number   catch_up      how many overdue entries may leave a second; 0: no limit
flag     owes          1: REVOKED must be stored for entries that are too late; or 0
flag     tells_ids     1: return the ids of delivered entries; or 0
flag     tells_times   1: return their times; or 0
number   last_ms       when the caller took its last step, ms; 0: never
number   since_ms      when the caller joined the shard, ms

reply    now, handed_over, due, relay, leased, back, has_timer, dead of id why, refused of why times,
         skipped of id why, ids, lateness, scanners

Returns  now, us; how many were delivered; the heads of due, relay, leased and of coming-back entries (or the next look
         at keys that have one behind), ms or -1; 1 if the
         caller must wake for the earliest of them, else 0; the dead entries; reasons of lists that refused entries,
         each with how many will be tried again; those skipped as too late; for each list that was pushed to, the ids,
         and in one text the times of each record, both empty unless requested; at a heartbeat, how many scanners are
         alive, else 0. Or, at a heartbeat, now alone: nothing was done, as the caller has not joined this store, which
         may be new; it must join
Cost     O(log N + M log N), M <= limit
         While memory is full, nothing leaves, and due entries are looked at again a second later: kombu takes a message
         from its list before it notes it as unacknowledged, which a full Redis refuses, and the message is lost
Keeps    an entry is in `due`, `refused` or `parked`, or in its list, never in two, never in none
]]
local now_us = clock_us()
local now = math.floor(now_us / 1000)
local holds_back = is_memory_full()
local scanners = 0

allow_when_full(keys.records)
if alive_ms > 0 then
  local known = redis.call('HMGET', keys.meta, 'timeout', 'tidy', 'store')
  if not known[1] or known[3] ~= store then return {now_us} end
  local note = tidiness()
  if note ~= '' then
    redis.call('HSET', keys.meta, 'tidy', note)
  elseif known[2] then
    make_untidy()
  end
  redis.call('ZADD', keys.scanners, whole(now + alive_ms), scanner)
  note_heartbeat(scanner, now, since_ms)
  scanners = redis.call('ZCOUNT', keys.scanners, whole(now), '+inf')
end

-- First free keys, and let entries come back that waited for something else.
local bytes, returning, tried = free_ended(now, limit, max_bytes), -1, head_of(keys.refused)
local lanes = new_lanes(now_us)
if lanes.any then bytes = bytes + come_back(lanes, max_bytes - bytes) end
bytes = bytes + take_up(lanes, max_bytes - bytes)
if tried >= 0 and tried <= now then bytes = bytes + retry_refused(now, limit, max_bytes) end

local batch = new_batch(keys.due, lanes, limit, max_bytes, catch_up, last_ms)
batch.bytes = bytes
if holds_back then batch.members = {} end
local members = batch.members
local lists, cache, turned_down = {}, {}, {}

local function list_for(key)
  for _, list in ipairs(lists) do
    if list.key == key then return list end
  end
  local list = {
    key = key, size = 0,
    messages = {}, ids = {}, members = {}, shared = {}, young = {}, leaving = {}, times = {},
  }
  lists[#lists + 1] = list
  return list
end

-- A record mostly resembles the one before in its header and likeness_of: compare these instead of parsing them again.
local prefix, likeness, header_end = false, false, 0
local list, line, name, has_extras, has_policy
local lane, pauses = false, {} -- the paused one that holds such entries back; all that may
local messages, ids, its_members -- of that list
local recent = {}

-- Parse a record unlike the one before; return false if nothing more is to do for it.
local function look_at(member, record)
  local found, defect = header_end_of(record)
  if is_leftover(member, record, found) then return false end
  if found and is_beyond(record) then
    batch.bytes = batch.bytes + #record
    lay_aside(batch, member, record, found)
    return false
  end
  local lines
  if found then lines, defect = lines_for(record, found, cache) end
  if lines == nil then
    batch.bytes = batch.bytes + #(record or '')
    die(batch, member, defect)
    return false
  end
  prefix, header_end = sub(record, 1, found), found
  likeness = likeness_of(record, found)
  has_extras = ends_in_extras(record, found)
  has_policy = has_flag(record, found, LATE_POLICY)
  pauses = lanes.any and pauses_of(lanes, record, found) or {}
  lane = #pauses > 0 and paused_lane(pauses)
  list, line, name = list_for(destination_of(record, found)), lines, template_of(record, found)
  messages, ids, its_members = list.messages, list.ids, list.members
  return true
end

-- Deal with an entry; return whether it goes to its list.
local function take(member, id, record)
  if not record or sub(record, 1, header_end) ~= prefix or likeness_of(record, header_end) ~= likeness
    or not has_times(record, header_end)
    or has_extras and not extras_start(record, header_end) then
    if not look_at(member, record) then return end
  elseif order_of(record, header_end) ~= sub(member, 1, 6)
    and is_leftover(member, record, header_end) then
    return
  end
  local where = lane or #pauses > 0 and full_lane(pauses, record, header_end)
  if where then
    batch.bytes = batch.bytes + #record
    return park(batch, where, member, record, header_end)
  end
  local message, defect
  if has_extras then
    message, defect = delivered_message(record, header_end, id, line)
  else
    message, defect = message_of(record, header_end, id, line, -1)
  end
  if not message then return die(batch, member, defect) end
  batch.bytes = batch.bytes + #message
  if has_policy and is_skipped(batch, member, record, header_end, pauses) then return end
  if #pauses > 0 then take_turns(pauses, record, header_end) end
  local at = list.size + 1
  list.size = at
  messages[at], ids[at], its_members[at] = message, id, member
  if tells_times then list.times[at] = times_of(record, header_end) end
  if name then list.shared[name] = (list.shared[name] or 0) + 1 end
  note_young(list.young, recent, id, record, header_end)
  if has_extras or past.kept then note_extras(list.leaving, id, member, record, header_end) end
  return true
end

-- Read many records at a time, which is less work than one by one, but no more than fit: the rest would be read again.
-- Small ones count as SMALL.
local function read_ahead()
  local ids, size, count = {}, batch.bytes, 0
  for at = batch.taken + 1, #members do
    local id = id_of(members[at])
    count = count + 1
    ids[count] = id
    size = size + (is_large(members[at]) and redis.call('HSTRLEN', keys.records, id) or SMALL)
    if size >= max_bytes then break end
  end
  return ids, redis.call('HMGET', keys.records, unpack(ids))
end

-- Whether Redis denies a script a command, or a key: in the words of 6.2 and 7.0, and in those of later ones.
local function is_denied(why)
  return string.find(why, 'The user executing the script', 1, true) or string.find(why, 'ACL failure', 1, true)
end

-- If a list cannot be pushed to (it has another type, a right is missing), its entries wait for another try, longer
-- each time. A missing right, which somebody may grant again, is no refusal.
local function put_off(list, why)
  local again, counted, failed = {}, {}, {}
  local reason, denied = list.key .. ': ' .. why, is_denied(why)
  make_untidy()
  for at, text in ipairs(redis.call('HMGET', keys.claims, unpack(list.ids))) do
    local claim, member = parse_claim(text), list.members[at]
    claim.attempts = claim.attempts + 1
    if not denied then claim.refusals = claim.refusals + 1 end
    counted[#counted + 1], counted[#counted + 2] = list.ids[at], format_claim(claim)
    if claim.refusals >= max_refusals then
      die(batch, member, reason)
    else
      again[#again + 1] = whole(now + math.min(longest_ms, 1000 * 2 ^ (denied and claim.attempts or claim.refusals)))
      again[#again + 1] = member
      failed[#failed + 1], failed[#failed + 2] = list.ids[at], reason
    end
  end
  redis.call('HSET', keys.claims, unpack(counted))
  if #again == 0 then return end
  redis.call('HSET', keys.errors, unpack(failed))
  redis.call('ZADD', keys.refused, unpack(again))
  turned_down[#turned_down + 1], turned_down[#turned_down + 2] = reason, #again / 2
end

local known, failed = false, false -- whether there may be claims, and errors, of earlier attempts
if #members > 0 then
  known = redis.call('HLEN', keys.claims) > 0
  failed = known and redis.call('HLEN', keys.errors) > 0
  recent = recent_of(now_us)
  -- These commands change nothing. They show whether they are allowed, before anything is pushed.
  redis.call('ZREMRANGEBYRANK', keys.due, 1, 0)
  redis.call('ZREM', keys.due, '')
  redis.call('HSET', keys.tombstones, '', '')
  redis.call('HDEL', keys.tombstones, '')
  redis.call('ZADD', keys.held, 'XX', 0, '')
  redis.call('HSET', keys.holders, '', '')
  redis.call('HDEL', keys.holders, '')
end

local is_over = #members == 0
while not is_over do
  local ids, found = read_ahead()
  for at = 1, #ids do
    is_over = is_full(batch)
    if is_over then break end
    local taken = batch.taken + 1
    batch.taken = taken
    if take(members[taken], ids[at], found[at]) and taken > batch.fresh then batch.spent = batch.spent + 1 end
  end
  is_over = is_over or batch.taken == #members or batch.bytes >= max_bytes
end
if batch.pace then spend(batch.pace, batch.spent) end

-- The new place is written before the old one is cleared: if Redis stops the script half-way, nothing is rolled back,
-- and a pushed entry must not be lost.
local handed_over, pushed_ids, pushed_times = 0, {}, {}
for _, full in ipairs(lists) do
  fence_young(full.young, now_us)
  local pushed = full.size > 0 and redis.pcall('LPUSH', full.key, unpack(full.messages))
  if type(pushed) == 'table' then
    put_off(full, pushed.err)
  elseif pushed then
    handed_over = handed_over + full.size
    if tells_ids then pushed_ids[#pushed_ids + 1] = full.ids end
    if tells_times then pushed_times[#pushed_times + 1] = table.concat(full.times) end
    local leaving = full.leaving
    leaving.ids, leaving.claimed, leaving.failed, leaving.shared = full.ids, known, failed, full.shared
    depart(leaving, 'h', now)
  end
end
end_batch(batch, owes)
-- At a heartbeat as well: an age passes even if nothing leaves.
if #members > 0 or alive_ms > 0 then turn_tombstones(now) end

if lanes.any then returning = look_back(lanes) end
if tried >= 0 or #turned_down > 0 then tried = head_of(keys.refused) end
local heads = {
  next_head(keys.due, now, batch.pace), next_head(keys.relay, now, batch.pace), head_of(keys.leased),
  earlier_head(earlier_head(tried, returning), next_look()),
}

if holds_back and heads[1] >= 0 then heads[1] = math.max(heads[1], now + 1000) end

local has_timer = asleep_ms > 0 and promise_next(heads, relay_ms, asleep_ms, scanner, now) or 0
return {
  now_us, handed_over, heads[1], heads[2], heads[3], heads[4], has_timer, batch.killed, turned_down, batch.skips.told,
  pushed_ids, pushed_times, scanners,
}
