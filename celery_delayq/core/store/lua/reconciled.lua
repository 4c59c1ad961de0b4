--[[ reconciled: note what a reconcile of a tag found; health and metrics read it.

text     tag   the tag
text     line  what it found, which only callers read; the time, ms, and a blank come before it
number   most  how many tags are noted, > 0; those noted first give way

Returns  1
Cost     O(T), T tags that are noted
Keeps    entries
]]
local rows, noted = redis.call('HSCAN', keys.reconciled, '0', 'COUNT', 1000)[2], {}
for at = 1, #rows, 2 do
  if rows[at] ~= tag then noted[#noted + 1] = {tonumber(string.match(rows[at + 1], '^%d+') or 0), rows[at]} end
end
table.sort(noted, function(one, other) return one[1] < other[1] end)
allow_when_full(keys.reconciled)
redis.call('HSET', keys.reconciled, tag, whole(math.floor(clock_us() / 1000)) .. ' ' .. line)
for at = 1, #noted + 1 - most do redis.call('HDEL', keys.reconciled, noted[at][2]) end
return 1
