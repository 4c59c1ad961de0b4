--[[ mark_stored: note that REVOKED was stored for cancelled tasks.

rows...     stored  of each task:
         id    the task's id
         when  when it was cancelled, us

Returns  the ids that were scheduled anew since, so that REVOKED is wrong
Cost     O(M log N)
Keeps    what a later cancel under the same id owes
]]
local anew = {}

-- Whether an id has an entry again, or one that was delivered. If it was cancelled again, REVOKED is right.
local function has_new_task(id, when)
  if redis.call('HEXISTS', keys.records, id) == 1 then return true end
  local stone = find_tombstone(id)
  return stone and sub(stone, 1, 1) == 'h' and tonumber(sub(stone, 2)) * 1000 >= tonumber(when)
end

for _, one in ipairs(stored) do
  local id = one.id
  if parse_owed(redis.call('HGET', keys.outbox_messages, id)) == one.when then
    redis.call('HDEL', keys.outbox_messages, id)
    redis.call('ZREM', keys.outbox, id)
  elseif has_new_task(id, one.when) then
    anew[#anew + 1] = id
  end
end
return anew
