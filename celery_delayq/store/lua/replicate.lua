--[[ replicate: write a value once more; a replica that has this write has all earlier ones.

text...     operations  calls that were answered just now, at least one

Returns  1; or 0: there is one that this Redis knows nothing of, so it is not among what was written here
Cost     O(N), N operations
Keeps    the timeout is what it was
]]
for _, operation in ipairs(operations) do
  local field = ANSWER .. operation
  local is_known = redis.call('HEXISTS', keys.calls, field) + redis.call('HEXISTS', keys.calls_old, field)
  if is_known == 0 then return 0 end
end

allow_when_full(keys.calls)
redis.call('HSET', keys.meta, 'timeout', redis.call('HGET', keys.meta, 'timeout'))
return 1
