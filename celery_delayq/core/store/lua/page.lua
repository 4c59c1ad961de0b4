--[[ page: the next waiting entries in due order, wherever they wait.

flag     newest     1: the latest due first, so "after" is towards earlier times; or 0
text     after      continue after this due time, ms, as in `last`
number   order      and, among equals, after this insertion number
number   first      only entries due at this time or later, unix ms
number   before     and before this
filter   filter     a selection's filter, or empty: see prelude/targets.lua; the state is not checked
number   limit      look at so many entries at most, 0..1000
number   max_bytes  stop after the entry that reaches so many bytes, > 0
number   most       look at no more refused entries than this, those with the next tries, > 0

reply    store, is_last, last in words of due order, found of member record,
         known in words of due state, templates of name text

Returns  `store` from meta or ''; 1 if that was all, else 0; the place of the last entry that was looked at, if any; the
         entries that match, without unreadable ones; of each the due time in ms, as Redis prints it, and its state,
         SCHEDULED or PAUSED, with its facts, see prelude/targets.lua; the templates that they share
Cost     O(log(N)^2 + M) and O(L log N), L lanes with parked entries, and O(R), R refused entries, at most `most`
Keeps    changes nothing. It looks at all places in this one step, and only due time and number decide an entry's place
         in the order: so entries that come, go, or move between places make it neither skip nor repeat another one
]]
local behind = tonumber(after)
local rows = {} -- candidates for the page

-- Take a row, if it comes after the end of the last page: an entry, and its due time, also as text.
local function add(entry, due, text)
  local number = number_of(entry.member)
  local later, further = due - behind, number - order
  if newest then later, further = -later, -further end
  if due < first or due >= before or later < 0 or (later == 0 and further <= 0) then return end
  entry.due, entry.text, entry.number = due, text, number
  rows[#rows + 1] = entry
end

local function look_at(index)
  local low = rank_behind(index, after, newest and order - 1 or order)
  local high = low + limit - 1
  if newest then low, high = math.max(0, low - limit), low - 1 end
  local found = limit > 0 and high >= 0 and redis.call('ZRANGE', index, low, high, 'WITHSCORES') or {}
  for at = 1, #found, 2 do
    add({member = found[at], place = index}, tonumber(found[at + 1]), found[at + 1])
  end
end

local function look_at_parked(found)
  for _, one in ipairs(found) do
    local when = parked_due(one)
    add({member = parked_member(one), place = keys.parked, there = one}, when, whole(when))
  end
end

-- The next parked entries from a text to just before another one.
local function parked_between(from, to)
  if newest then return redis.call('ZREVRANGEBYLEX', keys.parked, '(' .. to, '[' .. from, 'LIMIT', 0, limit) end
  return redis.call('ZRANGEBYLEX', keys.parked, '[' .. from, '(' .. to, 'LIMIT', 0, limit)
end

-- Look at a lane's parked entries. With one due time they are in the order of kinds, and only then of insertion.
local function look_at_lane(lane)
  local function of_time(when, from, to)
    for kind in string.gmatch('LRlr', '.') do
      local start = lane .. seven_bytes(when) .. kind
      local stop = to and start .. six_bytes(to) or lane .. seven_bytes(when) .. string.char(string.byte(kind) + 1)
      look_at_parked(parked_between(start .. six_bytes(from), stop))
    end
  end
  local from, to = math.ceil(first), math.ceil(before)
  if newest then
    if order > 0 and behind % 1 == 0 then of_time(behind, 0, math.min(order, 2^48 - 1)) end
    to = math.ceil(behind)
  else
    if behind >= 0 and order + 1 < 2^48 then of_time(math.floor(behind), order + 1) end
    from = math.max(0, math.floor(behind) + 1)
  end
  local found = parked_between(lane .. seven_bytes(from), lane .. seven_bytes(to))
  local last = #found == limit and found[limit] and parked_due(found[limit])
  while last and #found > 0 and parked_due(found[#found]) == last do table.remove(found) end
  look_at_parked(found)
  if last then of_time(last, 0) end
end

-- Refused entries are in the order of their next tries, so look at all of them, within the limits.
local function look_at_refused()
  local found, size = redis.call('ZRANGE', keys.refused, 0, most - 1, 'WITHSCORES'), 0
  for at = 1, #found, 2 do
    if size >= max_bytes then return end
    local record = redis.call('HGET', keys.records, id_of(found[at]))
    local header_end = header_end_of(record)
    size = size + #(record or '')
    local when = header_end and due_of(record, header_end) or tonumber(found[at + 1])
    add({member = found[at], place = keys.refused, score = found[at + 1]}, when, whole(when))
  end
end

if before > 0 and (newest and behind > 0 or not newest and behind < 2^53) then
  look_at(keys.due)
  look_at(keys.relay)
  look_at(keys.behind)
  if redis.call('ZCARD', keys.refused) > 0 then look_at_refused() end
  local lane = limit > 0 and redis.call('ZCARD', keys.parked) > 0 and lane_behind()
  while lane do
    look_at_lane(lane)
    lane = lane_behind(lane)
  end
end
table.sort(rows, function(one, other)
  if newest then one, other = other, one end
  if one.due ~= other.due then return one.due < other.due end
  return one.number < other.number
end)

local lanes = new_lanes(clock_us())
-- Mostly there are no claims, and no row must be checked.
local has_claims = redis.call('HLEN', keys.claims) > 0
local found, known, brought, bytes, taken = {}, {}, {}, 0, 0

for _, row in ipairs(rows) do
  if taken >= limit or bytes >= max_bytes then break end
  taken = taken + 1
  row.id = id_of(row.member)
  local record = redis.call('HGET', keys.records, row.id)
  local header_end = header_end_of(record)
  bytes = bytes + #(record or '')
  if header_end and (not filter or has_selected(filter, record, header_end)) then
    row.record, row.header_end = record, header_end
    found[#found + 1], found[#found + 2] = row.member, record
    local facts = facts_of(row, lanes, has_claims and row.place ~= keys.due)
    known[#known + 1] = row.text .. ' ' .. state_of(row, lanes) .. facts
    bytes = bytes + (bring(template_of(record, header_end), brought) or 0)
  end
end
-- The due time not as a whole number: after a rounded one the next page might begin with this row again.
local last = taken > 0 and rows[taken].text .. ' ' .. whole(rows[taken].number) or ''
return {
  redis.call('HGET', keys.meta, 'store') or '', taken == #rows and taken < limit and 1 or 0, last, found,
  table.concat(known, ' '), brought,
}
