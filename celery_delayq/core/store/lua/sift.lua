--[[ sift: a step of the search for a selection's entries; the step that changes an entry checks it again.

text     way     start: no search; tag: with the filter's first tag, in insertion order; count: how many these are; or
                 in no order: records, leased, dead, parked, refused, and, for due entries in them, due and relay
                 (without a pause, these last three find nothing); all: records, of unreadable ones RECORDLESS and the id
text     cursor  of a way without order: 0 to begin, then the cursor from the step before
number   count   about how many entries to look at, 1..1000
number   after   only those with a later insertion number, -1 for the first
number   upto    and none with a later one than this
filter   filter  the selection's filter: see prelude/targets.lua; state and tag are not checked here

reply    store, last, cursor, size, members

Returns  the name of the store or ''; the last insertion number, or the start of the next ones; the next cursor, 0 if
         that was all; how many bytes were read, or the count. Without order some members come twice; insertion numbers are
         counted without the last bit, which tells the size
Cost     O(log(N)^2 + count)
Keeps    changes nothing; entries that stay throughout are found, and by way of `tag` once
]]
local found, bytes = {}, 0

local function take(member)
  local serial = serial_of(member)
  if serial > after and serial <= upto then found[#found + 1] = member end
  bytes = bytes + #member
end

local known = redis.call('HMGET', keys.meta, 'store', 'seq')
local last = tonumber(known[2] or numbers_anew()) or 0
if way == 'tag' or way == 'count' then
  local prefix = filter.tags[1] .. '\0'
  local first, last = '[' .. prefix .. six_bytes((after + 1) * 2), '(' .. prefix .. six_bytes((upto + 1) * 2)
  if way == 'count' then return {known[1] or '', 0, '0', redis.call('ZLEXCOUNT', keys.tags, first, last), {}} end
  local rows = redis.call('ZRANGEBYLEX', keys.tags, first, last, 'LIMIT', 0, count)
  for _, row in ipairs(rows) do take(sub(row, #prefix + 1)) end
  cursor = #rows < count and '0' or '1'
elseif way == 'records' or way == 'all' then
  local step = redis.call('HSCAN', keys.records, cursor, 'COUNT', count)
  cursor = step[1]
  for at = 1, #step[2], 2 do
    local id, record = step[2][at], step[2][at + 1]
    local header_end = header_end_of(record)
    if header_end and has_selected(filter, record, header_end) then take(member_of(record, header_end, id)) end
    if not header_end and way == 'all' then take(RECORDLESS .. id) end
    bytes = bytes + #record
  end
elseif (way == 'due' or way == 'relay' or way == 'refused') and redis.call('HLEN', keys.paused) == 0 then
  cursor = '0'
elseif way == 'due' or way == 'relay' then
  local index, now = way == 'due' and keys.due or keys.relay, math.floor(clock_us() / 1000)
  local when, number = string.match(cursor, '^(.+):(%d+)$')
  local low = when and rank_behind(index, when, tonumber(number)) or 0
  local rows = redis.call('ZRANGE', index, low, low + count - 1, 'WITHSCORES')
  cursor = '0'
  for at = 1, #rows, 2 do
    if tonumber(rows[at + 1]) > now then break end
    take(rows[at])
    if at == 2 * count - 1 then cursor = rows[at + 1] .. ':' .. whole(number_of(rows[at])) end
  end
elseif way ~= 'start' then
  local places = {leased = keys.leased, dead = keys.dead, parked = keys.parked, refused = keys.refused}
  local step = redis.call('ZSCAN', places[way], cursor, 'COUNT', count)
  cursor = step[1]
  for at = 1, #step[2], 2 do take(way == 'parked' and parked_member(step[2][at]) or step[2][at]) end
end
return {known[1] or '', last, cursor, bytes, found}
