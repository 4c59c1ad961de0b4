--[[ The way out of the store, and tombstones of entries that left.

tombstone  1 byte   h: handed over; s: skipped; c: cancelled; u: cancelled, and a copy may have been delivered
           2..14    when, ms, 13 digits
           an entry with a unique key also leaves one under name_of_key; 15..27 of that: until when the key is held, ms;
           28: f: until its run has finished

There are two generations of them. One ends when it has a certain age or number, so a tombstone is known for at least
that time, or until at least so many are newer. In `meta` are

remember        this age, ms, a blank, and this number
remember_since  when the generation began, ms
]]
-- Remove entries: the one way out, for any reason, for one or a batch. Everything stored of an entry goes here. `how`
-- begins their tombstone; nil: they are replaced, and their ids keep a record.
-- `leaving` has their ids, and, if any:
--   place, members   their place, unless the caller clears it
--   claimed, failed  whether there may be a claim, or an error of an earlier attempt
--   shared           name of a template -> how many of them share it
--   keyed, tagged    their keys and tags, see note_extras; kept_key: the key that stays
--   events           their history events, see note_extras
--   is_replaced      whether others took their place, although they leave a tombstone
-- The record goes before its place: if Redis stops the script half-way, a place without a record is left, which the next
-- delivery clears.
local function depart(leaving, how, now)
  local ids, stamp = leaving.ids, how and how .. whole(now)
  if how and leaving.keyed then hold_on(leaving.keyed, how, now) end
  if how then
    local stones = {}
    for at = 1, #ids do stones[at * 2 - 1], stones[at * 2] = ids[at], stamp end
    redis.call('HSET', keys.tombstones, unpack(stones))
    redis.call('HDEL', keys.records, unpack(ids))
  end
  if leaving.place then redis.call('ZREM', leaving.place, unpack(leaving.members)) end
  if leaving.claimed then redis.call('HDEL', keys.claims, unpack(ids)) end
  if leaving.failed then redis.call('HDEL', keys.errors, unpack(ids)) end
  if leaving.keyed then drop_extras(leaving, stamp) end
  if leaving.events then note_left(leaving, how, now) end
  for name, count in pairs(leaving.shared) do
    drop_template(name, count)
  end
end

-- Which records may be younger than a call, by the first 4 of the 7 bytes of their last change. If a younger one leaves,
-- it leaves that as a fence, or an older request would be taken for new. (4 bytes are 17 s, and are compared faster than
-- read.) The setting of the history is read along with it.
local function recent_of(now_us)
  local known = redis.call('HMGET', keys.meta, 'timeout', 'history')
  begin_history(known[2])
  local longest = timeout_of(known[1]) or 60000
  local recent, step = {}, 2^24
  for us = now_us - longest * 1000, now_us + step, step do recent[sub(seven_bytes(us), 1, 4)] = true end
  return recent
end

-- Note a leaving record's last change, if it is young.
local function note_young(young, recent, id, record, header_end)
  if recent[sub(record, header_end + CHANGED, header_end + CHANGED + 3)] then
    local changed = changed_bytes(record, header_end)
    young[#young + 1], young[#young + 2] = id, changed
    local extras = ends_in_extras(record, header_end) and extras_of(record, header_end)
    if extras and extras.key then
      local keyed, name = young.keyed or {}, name_of_key(extras.key)
      if not keyed[name] or keyed[name] < changed then keyed[name] = changed end
      young.keyed = keyed
    end
  end
end

-- Refuse requests from before the last change of young entries; before they leave, as that cannot fail. A newer change
-- under the key than of the entry keeps its own fence, unless that is from before Redis's clock was set back.
local function fence_young(young, now_us)
  if #young > 0 then redis.call('HSET', keys.calls, unpack(young)) end
  for name, changed in pairs(young.keyed or {}) do
    local since = redis.call('HGET', keys.calls, name)
    if not since or since < changed or since > seven_bytes(now_us) then redis.call('HSET', keys.calls, name, changed) end
  end
end

-- Begin another generation of `tombstones` if this one is old or large enough. The time comes first: if Redis stops the
-- script here, they are kept longer.
local function turn_tombstones(now)
  local known = redis.call('HMGET', keys.meta, 'remember', 'remember_since')
  local ms, most = string.match(known[1] or '', '^(%d+) (%d+)$')
  if not ms then return end
  local age = now - (tonumber(known[2] or '') or math.huge)
  if age >= 0 and age < tonumber(ms) and redis.call('HLEN', keys.tombstones) < tonumber(most) then return end
  redis.call('HSET', keys.meta, 'remember_since', whole(now))
  -- If the clock was set back, or there is no time, keep both until the next turn.
  if age >= 0 then make_older(keys.tombstones, keys.tombstones_old) end
end

-- Rare: most calls are about tasks that are still there.

local function find_tombstone(id)
  return redis.call('HGET', keys.tombstones, id) or redis.call('HGET', keys.tombstones_old, id)
end

-- How the entry of a name left, in the words of readers, and when, ms; nil if no tombstone is kept.
local function how_left(name)
  local how, when = string.match(find_tombstone(name) or '', '^(.)(%d%d%d%d%d%d%d%d%d%d%d%d%d)')
  local left = ({h = 'handed_over', s = 'skipped', c = 'cancelled', u = 'uncertain'})[how]
  return left, left and when
end

local function was_handed_over(id)
  local tombstone = find_tombstone(id)
  return tombstone and sub(tombstone, 1, 1) == 'h'
end

-- The outbox. A cancelled task's result must become REVOKED for those that wait for it. Its canceller stores that; if it
-- did not by the latest end of its call, a scanner does; or a scanner from now on. Such an entry is
--   1        c, or u: a copy of the task may have been delivered
--   2..17    when, us, 16 digits
--   18..20   the length of the reason, 3 digits; the reason; and the task's message
local function owe(call, id, how, message, reason, by_scanner)
  local why = string.format('%03d', #reason) .. reason
  redis.call('HSET', keys.outbox_messages, id, how .. whole(call.now_us) .. why .. message)
  redis.call('ZADD', keys.outbox, whole(call.now + (by_scanner and 0 or call.timeout)), id)
end

-- Parse an entry of the outbox: when, in us, the message, how, and why.
local function parse_owed(text)
  local length = text and string.match(text, '^%d%d%d', 18)
  if not length then return nil end
  return sub(text, 2, 17), sub(text, 21 + length), sub(text, 1, 1), sub(text, 21, 20 + length)
end
