--[[ page: the next waiting entries in due order, wherever they wait.

text     after      continue after this due time, ms, as in the last row; -1 for the start
number   order      and, among equals, after this insertion number, -1 for the first
number   before     only entries due before this, unix ms
number   limit      most entries, 0..1000
number   max_bytes  stop after the entry that reaches so many bytes, > 0
number   most       look at no more refused entries than this, those with the next tries, > 0

reply    store, is_last, found of member record,
         known in words of due header_end state attempts next_try paused_by, failed of id why, templates of name text

Returns  `store` from meta or ''; 1 if that was all, else 0; the entries, without unreadable records; facts about each:
         due time in ms, as Redis prints it, S (scheduled) or P (paused), next try in ms or -1, its pauses, as in `find`;
         the last errors of those that have one; the templates that they share
Cost     O(log(N)^2 + M) and O(L log N), L lanes with parked entries, and O(R), R refused entries, at most `most`
Keeps    changes nothing. It looks at all places in this one step, and only due time and number decide an entry's place
         in the order: so entries that come, go, or move between places make it neither skip nor repeat another one
]]
local behind = tonumber(after)
local rows = {} -- candidates for the page

-- Take a row, if it comes after the end of the last page.
local function add(member, score, text)
  local number = number_of(member)
  if score >= before or score < behind or (score == behind and number <= order) then return end
  rows[#rows + 1] = {member = member, score = score, text = text, number = number}
  return rows[#rows]
end

local function look_at(index, is_new)
  local low = rank_behind(index, after, order)
  local found = limit > 0 and redis.call('ZRANGE', index, low, low + limit - 1, 'WITHSCORES') or {}
  for at = 1, #found, 2 do
    local row = add(found[at], tonumber(found[at + 1]), found[at + 1])
    if row then row.is_new = is_new end
  end
end

local function look_at_parked(found)
  for _, one in ipairs(found) do
    local when = parked_due(one)
    local row = add(parked_member(one), when, whole(when))
    if row then row.there = one end
  end
end

-- Look at a lane's parked entries. With one due time they are in the order of kinds, and only then of insertion.
local function look_at_lane(lane)
  local function of_time(when, first)
    for kind in string.gmatch('LRlr', '.') do
      local from = lane .. seven_bytes(when) .. kind
      local to = lane .. seven_bytes(when) .. string.char(string.byte(kind) + 1)
      local low = '[' .. from .. six_bytes(first)
      look_at_parked(redis.call('ZRANGEBYLEX', keys.parked, low, '(' .. to, 'LIMIT', 0, limit))
    end
  end
  local from = math.max(0, math.floor(behind) + 1)
  if behind >= 0 and order + 1 < 2^48 then of_time(math.floor(behind), order + 1) end
  local found = redis.call('ZRANGEBYLEX', keys.parked, '[' .. lane .. seven_bytes(from),
    '(' .. lane .. seven_bytes(math.ceil(before)), 'LIMIT', 0, limit)
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

if behind < 2^53 and before > 0 then
  look_at(keys.due, true)
  look_at(keys.relay, false)
  if redis.call('ZCARD', keys.refused) > 0 then look_at_refused() end
  local lane = limit > 0 and redis.call('ZCARD', keys.parked) > 0 and lane_behind()
  while lane do
    look_at_lane(lane)
    lane = lane_behind(lane)
  end
end
table.sort(rows, function(one, other)
  if one.score ~= other.score then return one.score < other.score end
  return one.number < other.number
end)

local lanes = new_lanes(clock_us())
local function is_paused(row, record, header_end)
  return header_end and (row.there or row.score <= lanes.now) and is_held(lanes, record, header_end, row.there)
end

-- Mostly there are no errors, and no row must be checked.
local has_claims = redis.call('HLEN', keys.claims) > 0
local found, known, failed, brought, bytes, taken = {}, {}, {}, {}, 0, 0
for _, row in ipairs(rows) do
  if taken >= limit or bytes >= max_bytes then break end
  taken = taken + 1
  local id = id_of(row.member)
  local record = redis.call('HGET', keys.records, id)
  local header_end = header_end_of(record)
  found[#found + 1], found[#found + 2] = row.member, header_end and record or ''
  -- As in find, nothing is reported of entries in `due`: without an attempt there is no claim, and no error.
  local claim = has_claims and not row.is_new and redis.call('HGET', keys.claims, id)
  if claim or row.next_try then
    failed[#failed + 1], failed[#failed + 2] = id, redis.call('HGET', keys.errors, id) or ''
  end
  local attempts = claim and parse_claim(claim).attempts or 0
  -- Not as a whole number: after a rounded score the next page might begin with this row again.
  known[#known + 1] = table.concat({
    row.text, header_end or 0, is_paused(row, record, header_end) and 'P' or 'S', attempts, row.next_try or -1,
    header_end and paused_by(lanes, record, header_end) or '-',
  }, ' ')
  local shared = header_end and bring(template_of(record, header_end), brought)
  bytes = bytes + #(record or '') + (shared or 0)
end
return {
  redis.call('HGET', keys.meta, 'store') or '', taken == #rows and taken < limit and 1 or 0, found,
  table.concat(known, ' '), failed, brought,
}
