--[[ claim: lease due entries to a scanner that publishes them through the broker.

KEYS[1]  relay      ZSET  member -> due time, ms
KEYS[2]  leased     ZSET  member -> lease deadline, ms
KEYS[3]  dead       ZSET  member -> when it was set aside, ms
KEYS[4]  messages   HASH  id -> record
KEYS[5]  templates  HASH  name -> template
KEYS[6]  claims     HASH  id -> claim
KEYS[7]  reasons    HASH  id -> why it is dead

ARGV[1]  token      fencing token, never used before
ARGV[2]  lease_ms   how long the caller may hold what it claims, > 0
ARGV[3]  limit      most entries to claim, 1..1000
ARGV[4]  max_bytes  stop after the entry that reaches so many bytes, > 0

Returns  {{member, destination, message, attempts made, refusals, unsure 0|1, ...},
         {id, reason, ...} set aside}
Cost     O(log N + M log N), M <= limit
Keeps    an entry is in `relay` or in `leased`, never in both
]]
local relay, leased, dead, messages = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local templates, claims, reasons = KEYS[5], KEYS[6], KEYS[7]
local token, lease_ms, limit = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local max_bytes = tonumber(ARGV[4])

local now = math.floor(clock_us() / 1000)
check_types({relay, leased, dead}, {messages, templates, claims, reasons})
allow_when_full(reasons)

local members, fresh = due_members(relay, now, limit)
local claimed, aside, cache = {}, {}, {}
local leases, attempts = {}, {} -- what ZADD and HSET take, once for all
local taken, bytes = 0, 0
local until_ms = whole(now + lease_ms)

local function take(member)
  local id = id_of(member)
  local record = redis.call('HGET', messages, id)
  local seam, defect = seam_of(record)
  local message
  if seam then message, defect = message_of(record, seam, id, templates, cache) end
  if not message then
    bury(dead, reasons, now, member, defect)
    aside[#aside + 1] = id
    aside[#aside + 1] = defect
    bytes = bytes + #(record or '')
    return
  end
  local claim = parse_claim(redis.call('HGET', claims, id))
  claim.lease_ms, claim.token = lease_ms, token
  local at = #leases
  leases[at + 1], leases[at + 2] = until_ms, member
  attempts[at + 1], attempts[at + 2] = id, format_claim(claim)
  at = #claimed
  claimed[at + 1], claimed[at + 2], claimed[at + 3] = member, destination_of(record, seam), message
  claimed[at + 4], claimed[at + 5] = claim.attempts, claim.refusals
  claimed[at + 6] = claim.unsure and 1 or 0
  bytes = bytes + #message
end

while taken < #members and bytes < max_bytes do
  taken = taken + 1
  take(members[taken])
end
if #leases > 0 then
  redis.call('ZADD', leased, unpack(leases))
  redis.call('HSET', claims, unpack(attempts))
end
remove_taken(relay, members, fresh, taken)
return {claimed, aside}
