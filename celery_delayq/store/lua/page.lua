--[[ page: the next waiting entries of one index, in due order.

KEYS[1]  index      ZSET  member -> due time, ms
KEYS[2]  records    HASH  id -> record
KEYS[3]  templates  HASH  name -> template

ARGV[1]  score      continue behind this due time, ms, as the last row had it; -1 for the start
ARGV[2]  order      and, among equals, behind this insertion number, -1 for the first
ARGV[3]  before     only entries due before this, unix ms
ARGV[4]  limit      most entries, 1..1000
ARGV[5]  max_bytes  stop after the entry that reaches so many bytes, > 0

Returns  {{member, record or '' if it cannot be read, ...}, a text of what else is known of each: score
         in ms, as Redis prints it, and header_end, blanks between; {name, template, ...} they share}
Cost     O(log(N)^2 + M)
Keeps    changes nothing; entries that come and go make it neither skip nor repeat another
]]
local score, order, before = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local limit, max_bytes = tonumber(ARGV[4]), tonumber(ARGV[5])

local function order_of(rank)
  return number_in(redis.call('ZRANGE', index, rank, rank)[1], 1, 6)
end

-- Among equal due times the members stand in insertion order: halve until the place is found.
-- (Lua's own comparison of strings follows the locale, so the numbers are compared.)
local low = redis.call('ZCOUNT', index, '-inf', '(' .. score)
local high = redis.call('ZCOUNT', index, '-inf', score)
while low < high do
  local middle = math.floor((low + high) / 2)
  if order_of(middle) <= order then low = middle + 1 else high = middle end
end

local found, known, brought, bytes = {}, {}, {}, 0
local rows = redis.call('ZRANGE', index, low, low + limit - 1, 'WITHSCORES')
for at = 1, #rows, 2 do
  local member, when = rows[at], tonumber(rows[at + 1])
  if when >= before or bytes >= max_bytes then break end
  local id = id_of(member)
  local record = redis.call('HGET', records, id)
  local header_end = header_end_of(record)
  found[#found + 1], found[#found + 2] = member, header_end and record or ''
  -- Not as a whole number: behind a rounded score the next page might begin with this row again.
  known[#known + 1] = rows[at + 1] .. ' ' .. (header_end or 0)
  local shared = header_end and bring(templates, template_of(record, header_end), brought)
  bytes = bytes + #(record or '') + (shared or 0)
end
return {found, table.concat(known, ' '), brought}
