--[[ leave: a scanner that stops is no longer counted as alive, nor relied upon.

text     scanner  who leaves

Returns  1, or 0 when it was not known
Cost     O(log S), S scanners
Keeps    the other scanners; one of them is told to look if this one was to be up
]]
local promise = promise_of()
local other = stand_in(scanner, math.floor(clock_us() / 1000))
if promise and promise.by == scanner then
  redis.call('HDEL', keys.meta, 'timer')
  if not other or not tell(other) then tell_all() end
end
redis.pcall('HDEL', keys.heartbeats, scanner)
return redis.call('ZREM', keys.scanners, scanner)
