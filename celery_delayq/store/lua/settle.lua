--[[ settle: REVOKED was stored for cancelled tasks.

KEYS[1]  outbox           ZSET  id whose REVOKED is to be stored -> from when on a scanner does it, ms
KEYS[2]  outbox_messages  HASH  id -> whether it is certain (c or u), when it was cancelled, message

ARGV[1...]  stored  of each task its id, and when it was cancelled, us

Returns  how many were owed
Cost     O(M log N)
Keeps    what a later cancel under the same id owes
]]

local FIELDS = 2
local settled = 0
for at = 1, #ARGV, FIELDS do
  local id = ARGV[at]
  if parse_owed(redis.call('HGET', outbox_messages, id)) == ARGV[at + 1] then
    redis.call('HDEL', outbox_messages, id)
    redis.call('ZREM', outbox, id)
    settled = settled + 1
  end
end
return settled
