--[[ mark_stored: note that REVOKED was stored for cancelled tasks.

rows...     stored  of each task:
         id    the task's id
         when  when it was cancelled, us

Returns  how many were owed
Cost     O(M log N)
Keeps    what a later cancel under the same id owes
]]
local count = 0
for _, one in ipairs(stored) do
  local id = one.id
  if parse_owed(redis.call('HGET', keys.outbox_messages, id)) == one.when then
    redis.call('HDEL', keys.outbox_messages, id)
    redis.call('ZREM', keys.outbox, id)
    count = count + 1
  end
end
return count
