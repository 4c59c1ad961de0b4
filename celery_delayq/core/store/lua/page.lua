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
         known in words of due header_end state attempts next_try paused_by, failed of id why, templates of name text,
         behind of id holder

Returns  `store` from meta or ''; 1 if that was all, else 0; the place of the last entry that was looked at, if any; the
         entries that match, without unreadable ones; facts about each: due time in ms, as Redis prints it, S (scheduled)
         or P (paused), next try in ms or -1, its pauses, as in `find`; the last errors of those that have one; the
         templates that they share; those behind another one, with its id
Cost     O(log(N)^2 + M) and O(L log N), L lanes with parked entries, and O(R), R refused entries, at most `most`
Keeps    changes nothing. It looks at all places in this one step, and only due time and number decide an entry's place
         in the order: so entries that come, go, or move between places make it neither skip nor repeat another one
]]
local behind = tonumber(after)
local rows = {} -- candidates for the page

-- Take a row, if it comes after the end of the last page.
local function add(member, score, text)
  local number = number_of(member)
  local later, further = score - behind, number - order
  if newest then later, further = -later, -further end
  if score < first or score >= before or later < 0 or (later == 0 and further <= 0) then return end
  rows[#rows + 1] = {member = member, score = score, text = text, number = number}
  return rows[#rows]
end

local function look_at(index)
  local low = rank_behind(index, after, newest and order - 1 or order)
  local high = low + limit - 1
  if newest then low, high = math.max(0, low - limit), low - 1 end
  local found = limit > 0 and high >= 0 and redis.call('ZRANGE', index, low, high, 'WITHSCORES') or {}
  for at = 1, #found, 2 do
    local row = add(found[at], tonumber(found[at + 1]), found[at + 1])
    if row then row.index = index end
  end
end

local function look_at_parked(found)
  for _, one in ipairs(found) do
    local when = parked_due(one)
    local row = add(parked_member(one), when, whole(when))
    if row then row.there = one end
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
    local row = add(found[at], when, whole(when))
    if row then row.next_try = found[at + 1] end
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
  if one.score ~= other.score then return one.score < other.score end
  return one.number < other.number
end)

local lanes = new_lanes(clock_us())
local function is_paused(row, record, header_end)
  return (row.there or row.index ~= keys.behind and row.score <= lanes.now) and is_held(lanes, record, header_end, row.there)
end

-- Mostly there are no errors, and no row must be checked.
local has_claims = redis.call('HLEN', keys.claims) > 0
local found, known, failed, brought, behind_others, bytes, taken = {}, {}, {}, {}, {}, 0, 0

local function take(row, id, record, header_end)
  found[#found + 1], found[#found + 2] = row.member, record
  -- As in find, nothing is reported of entries in `due`: without an attempt there is no claim, and no error.
  local claim = has_claims and row.index ~= keys.due and redis.call('HGET', keys.claims, id)
  if claim or row.next_try then
    failed[#failed + 1], failed[#failed + 2] = id, redis.call('HGET', keys.errors, id) or ''
  end
  if row.index == keys.behind then
    local at = #behind_others
    behind_others[at + 1], behind_others[at + 2] = id, holder_before(record, header_end)
  end
  local attempts = claim and parse_claim(claim).attempts or 0
  known[#known + 1] = table.concat({
    row.text, header_end, is_paused(row, record, header_end) and 'P' or 'S', attempts, row.next_try or -1,
    paused_by(lanes, record, header_end),
  }, ' ')
  bytes = bytes + (bring(template_of(record, header_end), brought) or 0)
end

for _, row in ipairs(rows) do
  if taken >= limit or bytes >= max_bytes then break end
  taken = taken + 1
  local id = id_of(row.member)
  local record = redis.call('HGET', keys.records, id)
  local header_end = header_end_of(record)
  bytes = bytes + #(record or '')
  if header_end and (not filter or has_selected(filter, record, header_end)) then take(row, id, record, header_end) end
end
-- The score not as a whole number: after a rounded one the next page might begin with this row again.
local last = taken > 0 and rows[taken].text .. ' ' .. whole(rows[taken].number) or ''
return {
  redis.call('HGET', keys.meta, 'store') or '', taken == #rows and taken < limit and 1 or 0, last, found,
  table.concat(known, ' '), failed, brought, behind_others,
}
