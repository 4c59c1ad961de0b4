--[[ replicate: write once more what is there; a replica that has that has all that was written before.

KEYS[1]  answers      HASH  operation -> answer
KEYS[2]  answers_old  HASH  the same, older
KEYS[3]  meta         HASH  timeout -> longest call, ms

ARGV[1...]  operations  calls that were answered just now, at least one

Returns  1; or 0: there is one that this Redis knows nothing of, so it is not among what was written here
Cost     O(N), N operations
Keeps    the timeout is what it was
]]
for at = 1, #ARGV do
  local operation = ARGV[at]
  if redis.call('HEXISTS', answers, operation) + redis.call('HEXISTS', answers_old, operation) == 0 then return 0 end
end

allow_when_full(answers)
redis.call('HSET', meta, 'timeout', redis.call('HGET', meta, 'timeout'))
return 1
