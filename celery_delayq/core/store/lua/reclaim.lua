--[[ reclaim: take back entries whose lease ran out because their scanner died or hung.

number   limit      most entries to take back, 1..1000
number   max_bytes  stop after the entry that reaches so many bytes, > 0

Returns  {id, ...} that wait again; whether they were published is not known
Cost     O(log N + M log N), M <= limit
Keeps    an entry is in `relay` or in `leased`, never in both
]]
local now = math.floor(clock_us() / 1000)
local reclaimed, bytes = {}, 0
allow_when_full(keys.claims)

local function reclaim(member, claim)
  local _, read = take_back(member, claim, now)
  bytes = bytes + read
  reclaimed[#reclaimed + 1] = id_of(member)
end

-- First the leases that ended. Then any with a deadline further off than the lease was long: Redis's clock was set
-- back since, and a lease of 30 s would hold for as long as the clock was wrong.
local over = redis.call('ZRANGEBYSCORE', keys.leased, '-inf', whole(now), 'LIMIT', 0, limit)
for _, member in ipairs(over) do
  if bytes >= max_bytes then return reclaimed end
  reclaim(member, parse_claim(redis.call('HGET', keys.claims, id_of(member))))
end
local rows = redis.call('ZREVRANGE', keys.leased, 0, limit - 1, 'WITHSCORES')
for at = 1, #rows, 2 do
  if bytes >= max_bytes then break end
  local claim = parse_claim(redis.call('HGET', keys.claims, id_of(rows[at])))
  if tonumber(rows[at + 1]) - now > claim.lease_ms then reclaim(rows[at], claim) end
end
return reclaimed
