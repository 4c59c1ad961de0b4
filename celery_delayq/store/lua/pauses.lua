--[[ pauses: what is paused, or comes back.

KEYS[1]  parked  ZSET  lane, due time, kind, member -> 0
KEYS[2]  paused  HASH  lane -> what is paused, and how it comes back

ARGV[1]  cursor  where the last slice ended; 0 for the start
ARGV[2]  count   about how many to look at, 1..1000

Returns  {the next cursor, or 0 at the end; {lane, name, 1 if it comes back, since when it is paused in us,
         1 if that counts as lateness, how many come back a second as text, how many are parked, ...}}
Cost     O(count * log N)
Keeps    changes nothing
]]
local cursor, count = ARGV[1], ARGV[2]

local slice = redis.call('HSCAN', paused, cursor, 'COUNT', count)
local found = {}
for at = 1, #slice[2], 2 do
  local lane, pause = slice[2][at], parse_pause(slice[2][at + 1])
  if pause then
    local last = #found
    found[last + 1], found[last + 2], found[last + 3] = lane, pause.name, pause.state == 'b' and 1 or 0
    found[last + 4], found[last + 5] = pause.since, tonumber(pause.late)
    found[last + 6] = string.format('%.6f', pause.rate)
    found[last + 7] = redis.call('ZLEXCOUNT', parked, '[' .. lane, '(' .. lane .. '\255')
  end
end
return {slice[1], found}
