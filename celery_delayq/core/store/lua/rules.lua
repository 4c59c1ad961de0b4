--[[ rules: read recurring rules: some by name, or slice by slice.

text     cursor  empty: those that are named; `trouble`: some whose next run cannot be made, or that are laid aside for a
                 writer of a later release; else 0 at first, then as it was returned
number   count   look at about so many, 1 to 1000
text...  names   0 to 1000

reply   now, cursor, found of name row next trouble

Returns  now, us; the next cursor, 0 at the end; and of each rule that is there its row, see prelude/rules.lua, and when a
         writer looks at it, ms, and since when, ms, and why its next run cannot be made
Cost     O(count)
Keeps    changes nothing
]]
local further, rows, found = '0', {}, {}
if cursor == 'trouble' then
  names = redis.call('ZRANGEBYSCORE', keys.rules_next, '-inf', '(0', 'LIMIT', 0, count)
  local troubled = redis.call('HSCAN', keys.rules_trouble, '0', 'COUNT', count)[2]
  for at = 1, math.min(#troubled, 2 * count), 2 do names[#names + 1] = troubled[at] end
end
if cursor == '' or cursor == 'trouble' then
  for _, name in ipairs(names) do
    rows[#rows + 1], rows[#rows + 2] = name, redis.call('HGET', keys.rules, name) or ''
  end
else
  further, rows = unpack(redis.call('HSCAN', keys.rules, cursor, 'COUNT', count))
end
for at = 1, #rows, 2 do
  local name, row = rows[at], rows[at + 1]
  if row ~= '' then
    found[#found + 1], found[#found + 2] = name, row
    found[#found + 1] = redis.call('ZSCORE', keys.rules_next, name) or ''
    found[#found + 1] = redis.call('HGET', keys.rules_trouble, name) or ''
  end
end
return {clock_us(), further, found}
