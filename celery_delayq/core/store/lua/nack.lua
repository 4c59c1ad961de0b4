--[[ nack: give claimed entries back, or make them dead.

closed   2, see prelude/closed.lua
text        token      the claim's fencing token
text        verdict    unsent: it never left, nothing is counted
                       unknown: the broker may have it
                       refused: the broker declined it
                       denied: the same, as a right is missing, which makes no entry dead
                       dead: refused for the last time
number      wait_ms    refused, denied: time until the next attempt, >= 0
flag        uncertain  1: a queue may have a copy, although it was refused; or 0
text        reason     refused, denied, dead: why
text...     members    the entries

Returns  how many were still leased under this token
Cost     O(M log N)
Keeps    an entry is in exactly one of `relay`, `refused`, `leased` and `dead`
]]
local now = math.floor(clock_us() / 1000)
local returned = 0
allow_when_full(keys.errors)

local function give_back(member)
  local id = id_of(member)
  local text = redis.call('HGET', keys.claims, id)
  if not is_claimed(text, token) then return end
  local claim = parse_claim(text)
  claim.uncertain = claim.uncertain or uncertain or verdict == 'unknown'
  if verdict ~= 'unsent' then claim.attempts = claim.attempts + 1 end
  if verdict == 'refused' or verdict == 'dead' then claim.refusals = claim.refusals + 1 end
  if verdict == 'dead' then
    bury(now, member, reason)
    end_claim(id, claim)
    -- Last: a script that Redis stops half-way leaves the lease, which runs out.
    redis.call('ZREM', keys.leased, member)
  else
    local index, due = welcome(member, now)
    if verdict == 'refused' or verdict == 'denied' then
      index, due = keys.refused, whole(now + wait_ms)
      redis.call('HSET', keys.errors, id, reason)
    end
    put_back(index, due, keys.leased, member, claim)
  end
  returned = returned + 1
end

for _, member in ipairs(members) do give_back(member) end
if past.kept then write_history() end
return returned
