--[[ Pauses, and the entries that they hold back.

paused  lane -> p (paused) or b (coming back), whether the pause counts as lateness (0 or 1), since when, us, how many
                come back a second (0: no limit), when the next ones come, us, how many of those before have a turn
                left, and up to which due time turns were given, ms; when it was resumed, us, and the last insertion
                number then; earlier pauses, each with a comma after it: begin, resumption, and when it held no entry
                back any more, ms, with '-' between; a colon between two; and, after one more, the name of the queue
                or task
        '<'  -> the lanes that are coming back, one after the other

A lane comes back until no entry is parked there, and no due entry fell due before it was resumed. Due time and insertion
number identify such entries that no scanner has met: they wait for their turn like parked ones.
]]
local RETURNING = '<' -- no lane is as short
local EACH_LANE = '.......' -- the pattern of one
local MOST_SPANS = 8 -- earlier pauses that a lane keeps
local FIELD = '^([pb]):([01]):(%d+):([%d.]+):(%d+):(%d+):(%d+):(%d+):(%d+):([-%d,]*):(.*)$'
local SPAN = '(%d+)%-(%d+)%-(%d+),'
local NUMBERS = 140737488355328 -- 2^47: insertion numbers are below this

-- The lanes, as a step sees them: those it has read, with changes not written yet.
local function new_lanes(now_us)
  return {
    now_us = now_us, now = math.floor(now_us / 1000), known = {}, any = redis.call('HLEN', keys.paused) > 0,
  }
end

-- The same for one entry's lanes, which are read at once. The time is read only if one of them is paused or coming back.
local function lanes_about(record, header_end)
  local names, lanes = lanes_of(record, header_end), {now_us = 0, now = 0, known = {}, any = false}
  for at, text in ipairs(redis.call('HMGET', keys.paused, unpack(names))) do
    local pause = text and parse_pause(text) or false
    lanes.known[names[at]] = pause
    lanes.any = lanes.any or pause ~= false
  end
  if lanes.any then
    lanes.now_us = clock_us()
    lanes.now = math.floor(lanes.now_us / 1000)
  end
  return lanes
end

-- The pauses that may hold an entry back; none if it is to run now.
local function pauses_of(lanes, record, header_end)
  local found = {}
  if not lanes.any or has_flag(record, header_end, RUN_NOW) then return found end
  for _, lane in ipairs(lanes_of(record, header_end)) do
    local pause = pause_of(lanes, lane)
    if pause then
      pause.lane = lane
      found[#found + 1] = pause
    end
  end
  return found
end

-- Rare: most stores have no pause.

-- Parse a lane's field in `paused`; or nil.
local function parse_pause(text)
  local state, late, since, rate, next_us, left, at, until_us, last, spans, name = string.match(text or '', FIELD)
  if not state or not tonumber(rate) then return nil end
  for _, number in ipairs({since, rate, next_us, left, at, until_us, last}) do
    if tonumber(number) >= 2^53 then return nil end -- another program's
  end
  return {
    state = state, late = late, since = since, rate = tonumber(rate), next_us = tonumber(next_us), left = tonumber(left),
    at = tonumber(at), until_us = tonumber(until_us), last = tonumber(last), spans = spans, name = name,
  }
end

-- A substitute for a pause if only its parked entries are left: another program changed the rest.
local function unknown_pause(now_us)
  local now = whole(math.ceil(now_us / 1000))
  return {
    state = 'b', late = '0', since = whole(now_us), rate = 0, next_us = now_us, left = 0, at = 0, until_us = now_us,
    last = NUMBERS, spans = '0-' .. now .. '-' .. now .. ',', name = '', is_changed = true,
  }
end

local function format_pause(pause)
  return table.concat({
    pause.state, pause.late, pause.since, string.format('%.17f', pause.rate), whole(pause.next_us), whole(pause.left),
    whole(pause.at), whole(pause.until_us), whole(pause.last), pause.spans, pause.name,
  }, ':')
end

-- The earlier pauses of a lane that is paused again, without those that count as lateness.
local function spans_with(pause, now_us)
  local spans = {}
  for from, upto, over in string.gmatch(pause.spans, SPAN) do spans[#spans + 1] = {from, upto, over} end
  if pause.state == 'b' and pause.late == '0' then
    spans[#spans + 1] = {
      whole(math.floor(pause.since / 1000)), whole(math.ceil(pause.until_us / 1000)), whole(math.ceil(now_us / 1000)),
    }
  end
  if #spans > MOST_SPANS then
    -- The two oldest become one: that excuses rather too much than too little.
    spans[2][1] = spans[1][1]
    table.remove(spans, 1)
  end
  for at, span in ipairs(spans) do spans[at] = table.concat(span, '-') .. ',' end
  return table.concat(spans)
end

-- The name for a lane's fence; ids and keys do not begin with this byte.
local function name_of_lane(lane)
  return '\254' .. lane
end

-- Make these lanes the ones that come back.
local function write_returning(lanes)
  if #lanes == 0 then
    redis.call('HDEL', keys.paused, RETURNING)
  else
    redis.call('HSET', keys.paused, RETURNING, table.concat(lanes))
  end
end

-- Add a lane to those that come back, or remove it.
local function note_returning(lane, comes_back)
  local others = {}
  for other in string.gmatch(redis.call('HGET', keys.paused, RETURNING) or '', EACH_LANE) do
    if other ~= lane then others[#others + 1] = other end
  end
  if comes_back then others[#others + 1] = lane end
  write_returning(others)
end

-- The pause of a lane; or false: it is neither paused nor coming back.
local function pause_of(lanes, lane)
  if lanes.known[lane] == nil then
    lanes.known[lane] = lanes.any and parse_pause(redis.call('HGET', keys.paused, lane)) or false
  end
  return lanes.known[lane]
end

-- Write the changed pauses.
local function save_lanes(lanes)
  for lane, pause in pairs(lanes.known) do
    if pause and pause.is_changed then redis.call('HSET', keys.paused, lane, format_pause(pause)) end
  end
end

-- The first paused lane of some pauses; or nil.
local function paused_lane(pauses)
  for _, pause in ipairs(pauses) do
    if pause.state == 'p' then return pause.lane end
  end
end

-- Whether an entry comes back with a lane: it was here and due when the lane was resumed.
local function returns_with(pause, record, header_end)
  return pause.state == 'b' and due_of(record, header_end) * 1000 <= pause.until_us
    and serial_of(order_of(record, header_end)) <= pause.last
end

-- The first lane of some pauses that is paused or coming back, for a due entry; or nil.
local function lane_for(pauses, record, header_end)
  for _, pause in ipairs(pauses) do
    if pause.state == 'p' or returns_with(pause, record, header_end) then return pause.lane end
  end
end

-- Whether a due entry is paused, as users see it: one of its lanes is paused, or comes back at a rate. A lane without a
-- rate holds nothing back. `there`: the member of `parked`, if it is parked.
local function is_held(lanes, record, header_end, there)
  for _, pause in ipairs(pauses_of(lanes, record, header_end)) do
    if pause.state == 'p' or pause.rate > 0 and returns_with(pause, record, header_end) then return true end
  end
  -- Another program changed the lane's pause: the entry stays parked until that is resumed.
  return there ~= nil and not pause_of(lanes, parked_lane(there))
end

-- The pauses of an entry, due or not: the first letters of lanes.
local function paused_by(lanes, record, header_end)
  local letters = ''
  for _, pause in ipairs(pauses_of(lanes, record, header_end)) do
    if pause.state == 'p' then letters = letters .. sub(pause.lane, 1, 1) end
  end
  return letters
end

-- The members parked in a lane, in the order of due times, at most `count`.
local function parked_in(lane, count)
  -- No due time begins with this byte.
  return redis.call('ZRANGEBYLEX', keys.parked, '[' .. lane, '(' .. lane .. '\255', 'LIMIT', 0, count)
end

-- The next lane with parked entries, and the first of these; or nil.
local function lane_behind(lane)
  -- A text shorter than a lane is another program's, and a whole member.
  local longest = lane and #lane == 7 and string.rep('\255', 7 + 1 + 6 + 512) or ''
  local from = lane and '(' .. lane .. longest or '-'
  local found = redis.call('ZRANGEBYLEX', keys.parked, from, '+', 'LIMIT', 0, 1)[1]
  local other = found and parked_lane(found)
  if other and other ~= lane then return other, found end
end

-- How many entries are parked in a lane.
local function count_parked(lane)
  return redis.call('ZLEXCOUNT', keys.parked, '[' .. lane, '(' .. lane .. '\255')
end

-- Look at the records of overdue entries in an index, at most `most`, and at most so many bytes: visit(record,
-- header_end or nil, score as text). Return how many were looked at.
local function look_through(index, last, most, max_bytes, visit)
  local looked, bytes, slice = 0, 0, 50
  repeat
    local found = redis.call('ZRANGEBYSCORE', index, '-inf', last, 'WITHSCORES', 'LIMIT', looked, slice)
    for at = 1, #found, 2 do
      if looked == most or bytes >= max_bytes then return looked end
      looked = looked + 1
      local record = redis.call('HGET', keys.records, id_of(found[at]))
      bytes = bytes + #(record or '')
      visit(record, header_end_of(record), found[at + 1])
    end
  until #found < 2 * slice
  return looked
end

-- The entries parked in lanes that come back without a limit, which hold nothing back: the first ones of each lane, at
-- most `most`, and none after so many bytes of records; and how many come after those.
local function parked_freely(lanes, most, max_bytes)
  local found, rest, bytes = {}, 0, 0
  for lane in string.gmatch(redis.call('HGET', keys.paused, RETURNING) or '', EACH_LANE) do
    local pause = pause_of(lanes, lane)
    if pause and pause.state == 'b' and pause.rate == 0 then
      rest = rest + count_parked(lane)
      for _, there in ipairs(parked_in(lane, most)) do
        if bytes >= max_bytes then break end
        local record = redis.call('HGET', keys.records, id_of(parked_member(there)))
        local header_end = header_end_of(record)
        bytes, rest = bytes + #(record or ''), rest - 1
        if not header_end or not is_held(lanes, record, header_end, there) then found[#found + 1] = there end
      end
    end
  end
  return found, rest
end
