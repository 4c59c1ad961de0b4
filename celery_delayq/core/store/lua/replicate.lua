--[[ replicate: repeat a write; a replica that has it has all earlier writes.

text...     operations  calls that were answered just now, at least one

Returns  1; or 0: this Redis does not know one of them, so that was not written here
Cost     O(N), N operations
Keeps    the value of the timeout
]]
for _, operation in ipairs(operations) do
  local field = ANSWER .. operation
  local is_known = redis.call('HEXISTS', keys.calls, field) + redis.call('HEXISTS', keys.calls_old, field)
  if is_known == 0 then return 0 end
end

allow_when_full(keys.calls)
redis.call('HSET', keys.meta, 'timeout', redis.call('HGET', keys.meta, 'timeout'))
return 1
