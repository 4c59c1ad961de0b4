--[[ queues: count some of the waiting entries by queue, in due order.

text     after      continue after this due time, ms, as in the last step; -1 for the start
number   order      and, among equals, after this insertion number, -1 for the first
number   limit      most entries to look at, 1..1000
number   max_bytes  look at nothing more after so many bytes of records, > 0

reply    looked, after, order, left_out, tallies of label waiting overdue place

Returns  how many were looked at; due time of the last one, as Redis prints it, and its insertion number, for the next
         step, or '' if that was all; how many refused and parked entries are left out; for each queue its label, or ''
         of unreadable entries, how many wait and how many of them are overdue, the destination of one of them.
         A due entry that is paused does not wait for its queue, so it is looked at but not counted. A parked one is
         counted if its lane comes back without a limit
Cost     O(log(N)^2 + limit)
Keeps    changes nothing. At the start it looks at refused entries, which are overdue: at most `limit`, those with the
         next tries; and at parked overdue entries, in each lane as many as are left of `limit`
]]
local now = math.floor(clock_us() / 1000)
local tallies, place_of_label, bytes = {}, {}, 0

-- Mostly a record resembles the one before: compare their common part instead of parsing it again.
local header, header_end = false, 0
local lanes = new_lanes(now * 1000)
local function note(record, is_due)
  if not header or not record or sub(record, 1, header_end) ~= header then
    header_end = header_end_of(record)
    header = header_end and sub(record, 1, header_end)
  elseif not is_sound(record, header_end) then
    header = false
  end
  bytes = bytes + #(record or '')
  if is_due and lanes.any and header and is_held(lanes, record, header_end) then return end
  local label = header and queue_of(record, header_end) or ''
  local at = place_of_label[label]
  if not at then
    at = #tallies + 1
    place_of_label[label] = at
    tallies[at], tallies[at + 1], tallies[at + 2] = label, 0, 0
    tallies[at + 3] = header and sub(record, 2, 2) .. destination_of(record, header_end) or ''
  end
  tallies[at + 1] = tallies[at + 1] + 1
  if is_due then tallies[at + 2] = tallies[at + 2] + 1 end
end

-- Read many records at a time, which is less work than one by one, but no more than fit.
local function read_behind(noted, members)
  local ids, size = {}, bytes
  for at = noted + 1, #members do
    ids[#ids + 1] = id_of(members[at])
    size = size + (is_large(members[at]) and redis.call('HSTRLEN', keys.records, ids[#ids]) or SMALL)
    if size >= max_bytes then break end
  end
  return redis.call('HMGET', keys.records, unpack(ids))
end

-- Note members in order, the first `overdue` of them as overdue, until enough was read; return how many.
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
  local others = redis.call('ZRANGE', keys.behind, 0, limit - 1 - looked)
  local noted = looked < limit and note_all(others, 0) or 0
  left_out = redis.call('ZCARD', keys.refused) - looked + redis.call('ZCARD', keys.behind) - noted
  looked = looked + noted
  if lanes.any then
    local free, rest = parked_freely(lanes, limit - looked, max_bytes)
    local freed = {}
    for at = 1, math.min(#free, limit - looked) do freed[at] = parked_member(free[at]) end
    local noted = note_all(freed, #freed)
    looked, left_out = looked + noted, left_out + rest + #free - noted
  end
  -- Continue after the refused ones; no due time is below 0.
  order = 0
end

local room = limit - looked
local function next_in(index)
  local low = rank_behind(index, after, order)
  -- One more than there is room for, to see whether this was all.
  return redis.call('ZRANGE', index, low, low + room, 'WITHSCORES')
end

-- Merge two indexes, each of them in due order.
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
