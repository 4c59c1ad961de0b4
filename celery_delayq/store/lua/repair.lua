--[[ repair: mend what `check` found, where it is still so.

KEYS[1]   due              ZSET  member -> due time, ms
KEYS[2]   relay            ZSET  member -> due time, ms
KEYS[3]   leased           ZSET  member -> lease deadline, ms
KEYS[4]   dead             ZSET  member -> since when, ms
KEYS[5]   refused          ZSET  member -> next try, ms
KEYS[6]   parked           ZSET  lane, due time, kind, member -> 0
KEYS[7]   paused           HASH  lane -> what is paused, and how it comes back
KEYS[8]   records          HASH  id -> record
KEYS[9]   holders          HASH  key -> id of the entry that has it
KEYS[10]  tags             ZSET  tag, NUL, member -> 0
KEYS[11]  templates        HASH  name -> template
KEYS[12]  template_uses    HASH  name -> how many records share the template
KEYS[13]  claims           HASH  id -> claim
KEYS[14]  errors           HASH  id -> what went wrong with it last
KEYS[15]  tombstones       HASH  id -> tombstone of what left
KEYS[16]  tombstones_old   HASH  the same, older
KEYS[17]  outbox           ZSET  id whose REVOKED is to be stored -> from when on a scanner does it, ms
KEYS[18]  outbox_messages  HASH  id -> what is owed for it
KEYS[19]  wake             CHANNEL  where scanners are told to look
KEYS[20]  timer            STRING  which scanner is up next, and when
KEYS[21]  history          LIST  what happened last, see prelude/history.lua
KEYS[22]  meta             HASH  seq -> last insertion number; history -> how much of it there is

ARGV[1...]  findings  of each its kind, and the part and field where it was found; not those of counts

Returns  a word of each: gone (it is so no more, and nothing was changed) | done | back (it waits again) |
         late (it does, and is too late to leave, so it will be skipped) | lost (its place was taken away) | dead and a blank and the reason
Cost     O(log N) a finding
Keeps    what fits, and what another step has changed since: all is looked at again in this one step, as `check` does
]]
local FIELDS = 3
local LEFT = 'it had lost its place, and may have left'
local NUMBER = string.rep('%d', 13)
local kinds = {} -- of what does not fit at the field that is looked at: kind -> true
local look = misfits.look(keys, function(kind) kinds[kind] = true end, function() end)
local now, earliest = look.now, math.huge

local promise = promise_of(timer)
past.begin(redis.call('HGET', meta, 'history'))
allow_when_full(records)

-- Whether an entry that is here has left as well: its tombstone is as young as its last change.
local function has_left(id, record, header_end)
  local stone = find_tombstone(tombstones, tombstones_old, id)
  local left = stone and tonumber(string.match(stone, '^.(' .. NUMBER .. ')'))
  return left and left >= math.floor(changed_of(record, header_end) / 1000)
end

-- Where an entry belongs that is nowhere, and its score there, or why it is dead; and its claim, if that is another
-- than it was. No script leaves one so, also where Redis stops it: a whole index was lost, or a member of one. In
-- `leased` it may have been published since, or be under way: then that goes on until its lease ends. What had failed
-- may have been dead, and what has a tombstone may have left: nothing lets those go but whoever looks at them. What
-- was due to be published, and of which no attempt is known, may have lost its claim along with its lease.
local function place_for(id, record, header_end)
  local text = redis.call('HGET', claims, id)
  local claim, is_relayed = parse_claim(text), sub(record, 2, 2) == 'R'
  if claim.token ~= '' then
    local since = tonumber(string.match(claim.token, ':(%d+)$') or 0)
    return leased, math.min(math.floor(since / 1000), now) + claim.lease_ms
  end
  local left, due_ms = has_left(id, record, header_end), due_of(record, header_end)
  local is_marked = is_relayed and not claim.uncertain and (left or not text and due_ms <= now)
  if is_marked then claim.attempts, claim.uncertain = claim.attempts + 1, true end
  local reason = left and LEFT or redis.call('HGET', errors, id)
  if reason then return dead, reason, is_marked and claim end
  return is_relayed and relay or due, due_ms, is_marked and claim
end

local function give_place(id, record, header_end, member)
  local place, score, claim = place_for(id, record, header_end)
  if claim then redis.call('HSET', claims, id, format_claim(claim)) end
  if place == dead then
    bury(keys, now, member, score)
    return 'dead ' .. score
  end
  redis.call('ZADD', place, whole(score), member)
  earliest = math.min(earliest, score)
  if place == leased then return 'done' end
  take_key(record, header_end, id, keys)
  if past.kept then
    local extras = extras_of(record, header_end)
    past.note('b', now, past.told_by(record, header_end, id, extras and extras.key))
  end
  -- Of a pause that held it up, and is over, nothing is known here: that excuses nothing.
  local lanes = new_lanes(paused, clock_us())
  local is_late = too_late_by(lanes, record, header_end) and not is_held(lanes, record, header_end)
  return is_late and 'late' or 'back'
end

-- All places of an entry, the one that it keeps first: under a lease somebody may be publishing it; what waits goes
-- before what failed, as where Redis stops a script that moves it.
local function places_of(id, record, header_end, member)
  local found = {}
  local function add(place, there)
    if redis.call('ZSCORE', place, there) then found[#found + 1] = {place, there} end
  end
  local is_claimed = parse_claim(redis.call('HGET', claims, id)).token ~= ''
  local is_relayed = sub(record, 2, 2) == 'R'
  if is_claimed then add(leased, member) end
  add(is_relayed and relay or due, member)
  add(is_relayed and due or relay, member)
  add(refused, member)
  for _, lane in ipairs(lanes_of(record, header_end)) do add(parked, parked_as(lane, record, header_end, member)) end
  if not is_claimed then add(leased, member) end
  add(dead, member)
  return found
end

local mends = {}

local function unpark(there)
  local lane, id = sub(there, 1, 7), id_of(sub(there, misfits.BEHIND_LANE))
  local record = redis.call('HGET', records, id)
  excuse(records, id, record, header_end_of(record), now)
  -- It is not among the lanes that come back: what is known of it would hold up what comes back without it.
  if parse_pause(redis.call('HGET', paused, lane)) then redis.call('HDEL', paused, lane) end
  earliest = math.min(earliest, unpark_one(there, keys))
end

function mends.record_without_place(part, id)
  if part == 'parked' then return unpark(id) end
  local record = redis.call('HGET', records, id)
  local header_end = header_end_of(record)
  return give_place(id, record, header_end, member_of(record, header_end, id))
end

function mends.place_without_record(part, there)
  redis.call('ZREM', keys[part], there)
  local id = id_of(part == 'parked' and sub(there, misfits.BEHIND_LANE) or there)
  if part == 'dead' then return redis.call('HDEL', errors, id) and 'done' end
  return find_tombstone(tombstones, tombstones_old, id) and 'done' or 'lost'
end

-- The one that it keeps is there before another one goes.
function mends.second_place(part, there)
  local id = id_of(part == 'parked' and sub(there, misfits.BEHIND_LANE) or there)
  local record = redis.call('HGET', records, id)
  local header_end = header_end_of(record)
  local member = member_of(record, header_end, id)
  local found = places_of(id, record, header_end, member)
  local word = #found == 0 and give_place(id, record, header_end, member) or 'done'
  for at = 2, #found do redis.call('ZREM', found[at][1], found[at][2]) end
  local is_kept = found[1] and found[1][1] == keys[part] and found[1][2] == there
  if not is_kept then redis.call('ZREM', keys[part], there) end
  return word
end

function mends.leftover(part, id) redis.call('HDEL', keys[part], id) end

function mends.wrong_key(part, field)
  if part == 'holders' then return redis.call('HDEL', holders, field) and 'done' end
  local record = redis.call('HGET', records, field)
  take_key(record, header_end_of(record), field, keys)
end

function mends.wrong_tag(part, field)
  if part == 'tags' then return redis.call('ZREM', tags, field) and 'done' end
  local extras, member = misfits.extras_at(field, look)
  for _, tag in ipairs(extras.tags) do redis.call('ZADD', tags, 0, tag .. '\0' .. member) end
end

-- A new task under its id is no longer revoked.
function mends.owed_revoked(part, id)
  if part == 'outbox' then
    redis.call('ZREM', outbox, id)
  elseif redis.call('HEXISTS', records, id) == 1 or not parse_owed(redis.call('HGET', outbox_messages, id)) then
    redis.call('HDEL', outbox_messages, id)
  else
    redis.call('ZADD', outbox, whole(now), id)
  end
end

-- Above all that were given, as where `seq` is lost; and not below that of the record which shows that it is too low.
function mends.number_too_low(part, field)
  local record = part == 'records' and redis.call('HGET', records, field)
  local serial = record and serial_of(member_of(record, header_end_of(record), field)) or 0
  look.seq = math.max(numbers_anew(records), serial)
  redis.call('HSET', meta, 'seq', whole(look.seq))
end

local IN_HASH = {
  records = true, holders = true, claims = true, errors = true, outbox_messages = true, meta = true,
}
local words = {}
for at = 1, #ARGV, FIELDS do
  local kind, part, field = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local value = redis.call(IN_HASH[part] and 'HGET' or 'ZSCORE', keys[part], field)
  kinds = {}
  if value then misfits.at(part, field, value, look) end
  words[#words + 1] = kinds[kind] and (mends[kind](part, field) or 'done') or 'gone'
end
if earliest < math.huge then wake_for(earliest, now, wake, timer, promise) end
past.write(history)
return words
