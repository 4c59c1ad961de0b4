--[[ upgrade: let records and rules have the newest format that this release and each live scanner read.

Returns  {the newest that records and rules may have from now on}
Cost     O(log S + M), M live scanners
Keeps    it is never lowered, so a process may go on writing a format that it was once told
]]
local alive, format = alive_in(math.floor(clock_us() / 1000)), FORMAT
for at = 3, #alive, 4 do
  if string.byte(alive[at]) < string.byte(format) then format = alive[at] end
end
local known = redis.call('HGET', keys.meta, 'format') or FIRST
if string.byte(format) <= string.byte(known) then return {known} end
redis.call('HSET', keys.meta, 'format', format)
return {format}
