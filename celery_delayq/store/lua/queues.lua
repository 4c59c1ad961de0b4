--[[ queues: of which queues some of the waiting entries are, in due order.

text     after      continue behind this due time, ms, as the last step had it; -1 for the start
number   order      and, among equals, behind this insertion number, -1 for the first
number   limit      most entries to look at, 1..1000
number   max_bytes  look at nothing more after so many bytes of records, > 0

reply    looked, after, order, left_out, tallies of label waiting overdue place

Returns  how many were looked at; due time of the last one, as Redis prints it, and its insertion number, where the
         next step goes on, or '' when that was all; how many of the refused and parked are left out; of each queue
         its label, or '' of what cannot be read, how many are of it and overdue, the destination of one of them.
         What is due and paused does not wait for its queue: it is looked at, and counted nowhere. What is parked is,
         where it comes back as fast as it goes
Cost     O(log(N)^2 + limit)
Keeps    changes nothing. At the start it looks at what was refused, which is overdue: at no more than `limit`, those
         that are tried next; and at what is parked and overdue, at as much of each lane as is left of `limit`
]]
local now = math.floor(clock_us() / 1000)
local tallies, place_of_label, bytes = {}, {}, 0

-- Mostly a record is like the one before: what they have in common is compared, and not looked for again.
local header, header_end = false, 0
local lanes = new_lanes(now * 1000)
local function note(record, is_overdue)
  if not header or not record or sub(record, 1, header_end) ~= header then
    header_end = header_end_of(record)
    header = header_end and sub(record, 1, header_end)
  elseif not is_sound(record, header_end) then
    header = false
  end
  bytes = bytes + #(record or '')
  if is_overdue and lanes.any and header and is_held(lanes, record, header_end) then return end
  local label = header and queue_of(record, header_end) or ''
  local at = place_of_label[label]
  if not at then
    at = #tallies + 1
    place_of_label[label] = at
    tallies[at], tallies[at + 1], tallies[at + 2] = label, 0, 0
    tallies[at + 3] = header and sub(record, 2, 2) .. destination_of(record, header_end) or ''
  end
  tallies[at + 1] = tallies[at + 1] + 1
  if is_overdue then tallies[at + 2] = tallies[at + 2] + 1 end
end

-- Records are read many at a time, which is less work than one by one, and no more than fit.
local function read_behind(noted, members)
  local ids, size = {}, bytes
  for at = noted + 1, #members do
    ids[#ids + 1] = id_of(members[at])
    size = size + (is_large(members[at]) and redis.call('HSTRLEN', keys.records, ids[#ids]) or SMALL)
    if size >= max_bytes then break end
  end
  return redis.call('HMGET', keys.records, unpack(ids))
end

-- Note members in their order, of which so many are overdue, until enough was read; how many that were.
local function note_all(members, overdue)
  local noted = 0
  while noted < #members and bytes < max_bytes do
    for _, record in ipairs(read_behind(noted, members)) do
      noted = noted + 1
      note(record, noted <= overdue)
    end
  end
  return noted
end

local looked, left_out = 0, 0
if tonumber(after) < 0 and order < 0 then
  local tried = redis.call('ZRANGE', keys.refused, 0, limit - 1)
  looked = note_all(tried, #tried)
  left_out = redis.call('ZCARD', keys.refused) - looked
  if lanes.any then
    local free, rest = parked_freely(lanes, limit - looked, max_bytes)
    local freed = {}
    for at = 1, math.min(#free, limit - looked) do freed[at] = parked_member(free[at]) end
    local noted = note_all(freed, #freed)
    looked, left_out = looked + noted, left_out + rest + #free - noted
  end
  -- Behind what was refused; no due time is below 0.
  order = 0
end

local room = limit - looked
local function next_in(index)
  local low = rank_behind(index, after, order)
  -- One more than there is room for, which tells that this was not all.
  return redis.call('ZRANGE', index, low, low + room, 'WITHSCORES')
end

-- What comes next of two indexes, each of them in due order.
local members, whens, overdue = {}, {}, 0
local one, other, at, beside = next_in(keys.due), next_in(keys.relay), 1, 1
local score, its_score = tonumber(one[2]), tonumber(other[2])
while (score or its_score) and #members < room do
  local is_earlier = score and (not its_score or score < its_score)
  if score and score == its_score then is_earlier = number_of(one[at]) < number_of(other[beside]) end
  if (is_earlier and score or its_score) <= now then overdue = overdue + 1 end
  if is_earlier then
    members[#members + 1], whens[#members + 1] = one[at], one[at + 1]
    at = at + 2
    score = tonumber(one[at + 1])
  else
    members[#members + 1], whens[#members + 1] = other[beside], other[beside + 1]
    beside = beside + 2
    its_score = tonumber(other[beside + 1])
  end
end

local noted = note_all(members, overdue)
if noted > 0 then after, order = whens[noted], number_of(members[noted]) end
if noted == #members and not (score or its_score) then after = '' end
return {looked + noted, after, order, left_out, tallies}
