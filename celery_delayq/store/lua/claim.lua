--[[ claim: lease due entries to a scanner that publishes them through the broker.

KEYS[1]   relay           ZSET  member -> due time, ms
KEYS[2]   leased          ZSET  member -> lease deadline, ms
KEYS[3]   dead            ZSET  member -> since when, ms
KEYS[4]   refused         ZSET  member -> next try, ms
KEYS[5]   parked          ZSET  lane, due time, kind, member -> 0
KEYS[6]   records         HASH  id -> record
KEYS[7]   templates       HASH  name -> template
KEYS[8]   claims          HASH  id -> claim
KEYS[9]   errors          HASH  id -> what went wrong with it last
KEYS[10]  tombstones      HASH  id -> tombstone of what left
KEYS[11]  tombstones_old  HASH  the same, older
KEYS[12]  due             ZSET  member -> due time, ms
KEYS[13]  history         LIST  what happened last, see prelude/history.lua
KEYS[14]  meta            HASH  history -> how much of it there is

ARGV[1]  asker      who claims, and its number; never used before. With now in us after it, the fencing
                    token: a claim that arrives twice has two
ARGV[2]  lease_ms   how long the caller may hold what it claims, > 0
ARGV[3]  limit      most entries to claim, 1..1000
ARGV[4]  max_bytes  stop after the entry that reaches so many bytes, > 0

Returns  {now in us, {member, record, ...}, a text of what else is known of each: header_end, attempts made,
         refusals and uncertain 0|1, blanks between; {name, template, ...} they share, {id, reason, ...} dead}
Cost     O(log N + M log N), M <= limit
Keeps    an entry is in `relay` or in `leased`, never in both
]]
local asker, lease_ms, limit = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local max_bytes = tonumber(ARGV[4])
local places = {due, relay, leased, dead, refused, parked = parked}

local now_us = clock_us()
local now = math.floor(now_us / 1000)
local token = asker .. ':' .. whole(now_us)
check_types({relay, leased, dead}, {records, templates, claims, errors, tombstones, tombstones_old})
allow_when_full(errors)

local members, fresh = due_members(relay, now, limit)
local claimed, known, brought, killed = {}, {}, {}, {}
local ids, leases, attempts = {}, {}, {} -- what HMGET, ZADD and HSET take, once for all
local taken, bytes = 0, 0
local until_ms = whole(now + lease_ms)
local first = format_claim({attempts = 0, refusals = 0, lease_ms = lease_ms, token = token})

local function die(member, id, reason)
  bury(keys, now, member, reason)
  killed[#killed + 1], killed[#killed + 2] = id, reason
end

local function take(member)
  local id = id_of(member)
  local record = redis.call('HGET', records, id)
  local header_end, defect = header_end_of(record)
  bytes = bytes + #(record or '')
  if is_leftover(member, record, header_end, places, tombstones, tombstones_old) then return end
  if not header_end then return die(member, id, defect) end
  local shared = bring(templates, template_of(record, header_end), brought)
  if not shared then return die(member, id, 'template is gone') end
  bytes = bytes + shared
  local at = #claimed
  claimed[at + 1], claimed[at + 2] = member, record
  leases[at + 1], leases[at + 2] = until_ms, member
  known[#known + 1] = header_end
  ids[#ids + 1] = id
end

-- Most are claimed for the first time: nothing is known of those.
local function lease(at, text)
  local numbers = '0 0 0'
  if text then
    local claim = parse_claim(text)
    numbers = claim.attempts .. ' ' .. claim.refusals .. (claim.uncertain and ' 1' or ' 0')
    claim.lease_ms, claim.token = lease_ms, token
    text = format_claim(claim)
  end
  known[at] = known[at] .. ' ' .. numbers
  attempts[at * 2 - 1], attempts[at * 2] = ids[at], text or first
end

while taken < #members and bytes < max_bytes do
  taken = taken + 1
  take(members[taken])
end
if #ids > 0 then
  for at, text in ipairs(redis.call('HMGET', claims, unpack(ids))) do lease(at, text) end
  redis.call('ZADD', leased, unpack(leases))
  redis.call('HSET', claims, unpack(attempts))
end
remove_taken(relay, members, fresh, taken)
write_history(history)
return {now_us, claimed, table.concat(known, ' '), brought, killed}
