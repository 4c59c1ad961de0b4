--[[ leave: a stopping scanner no longer counts as alive, and its promise ends.

text     scanner  its name

Returns  1, or 0 if it was not known
Cost     O(log S), S scanners
Keeps    the other scanners; one of them is woken if this one was to be up next
]]
local promise = promise_of()
local other = stand_in(scanner, math.floor(clock_us() / 1000))
if promise and promise.by == scanner then
  redis.call('HDEL', keys.meta, 'timer')
  if not other or not tell(other) then tell_all() end
end
redis.pcall('HDEL', keys.heartbeats, scanner)
return redis.call('ZREM', keys.scanners, scanner)
