--[[ settle: REVOKED was stored for cancelled tasks.

ARGV[1...]  stored  of each task its id, and when it was cancelled, us

Returns  how many were owed
Cost     O(M log N)
Keeps    what a later cancel under the same id owes
]]

local FIELDS = 2
local settled = 0
for at = 1, #ARGV, FIELDS do
  local id = ARGV[at]
  if parse_owed(redis.call('HGET', keys.outbox_messages, id)) == ARGV[at + 1] then
    redis.call('HDEL', keys.outbox_messages, id)
    redis.call('ZREM', keys.outbox, id)
    settled = settled + 1
  end
end
return settled
