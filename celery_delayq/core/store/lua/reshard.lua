--[[ reshard: the phase of a resharding, as the meeting place notes it; go on to the next one.

closed   9, see prelude/closed.lua
text     seen  the phase from which it goes on: name, numbers of shards before and after, name of the resharding, blanks
               between; empty: none
text     next  the next one; the same: write it once more; empty: it is over, or only read

Returns  {shards, phase, timeout in ms}, as they are now, the first two '' if there are none; the timeout is the longest of
         a call
Cost     O(1)
Keeps    one resharding at a time, of the present number of shards; with the phase `clear` the number changes
]]
local known = redis.call('HMGET', keys.meta, 'shards', 'reshard', 'timeout', 'ended')
local name, before, after, run = string.match(next, '^(%a+) (%d+) (%d+) (.+)$')
-- A late request must not begin it again.
local is_fit = seen ~= '' or before == known[1] and run ~= known[4]
if (known[2] or '') == seen and (next ~= '' or seen ~= '') and is_fit then
  allow_when_full(keys.meta)
  known[2] = next
  if next == '' then
    redis.call('HSET', keys.meta, 'ended', string.match(seen, '%S+$'))
    redis.call('HDEL', keys.meta, 'reshard')
  elseif name == 'clear' then
    known[1] = after
    redis.call('HSET', keys.meta, 'reshard', next, 'shards', after)
  else
    redis.call('HSET', keys.meta, 'reshard', next)
  end
end
return {known[1] or '', known[2] or '', timeout_of(known[3]) or 60000}
