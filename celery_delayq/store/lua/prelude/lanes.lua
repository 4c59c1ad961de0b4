--[[ What is paused, what fell due meanwhile, and how that comes back.

paused  lane -> p (paused) or b (what is parked in it comes back), whether the pause counts as lateness (0 or 1),
                since when, us, how many come back a second (0: as fast as it goes), when the next ones come, us; a
                colon between two; and, behind one more, the name of the queue or task
        '<'  -> the lanes that come back, one behind the other
]]
local RETURNING = '<' -- no lane is as short
local BACK = 1000 -- most entries that come back in one step
local STEPS_A_SECOND = 10 -- in which they come back at a rate, at least
local MOST_AT_ONCE = 100 -- of these, so that a step of a high rate is small as well
local STEPS_BEHIND = 10 -- that are made up for when nobody has looked for a while
local FIELD = '^([pb]):([01]):(%d+):([%d.]+):(%d+):(.*)$'

-- What a lane's field in `paused` says; or nil.
local function parse_pause(text)
  local state, late, since, rate, next_us, name = string.match(text or '', FIELD)
  if not state or not tonumber(rate) then return nil end
  return {
    state = state, late = late, since = since, rate = tonumber(rate), next_us = tonumber(next_us), name = name,
  }
end

-- What stands for a pause of which only what is parked is left: somebody else changed the rest.
local function unknown_pause(now_us)
  return {state = 'b', late = '0', since = whole(now_us), rate = 0, next_us = now_us, name = ''}
end

local function format_pause(pause)
  return table.concat({
    pause.state, pause.late, pause.since, string.format('%.6f', pause.rate), whole(pause.next_us), pause.name,
  }, ':')
end

-- Under what a pause is fenced, among ids and keys, which do not begin with this byte.
local function name_of_lane(lane)
  return '\254' .. lane
end

-- Let these lanes be the ones that come back.
local function write_returning(paused, lanes)
  if #lanes == 0 then
    redis.call('HDEL', paused, RETURNING)
  else
    redis.call('HSET', paused, RETURNING, table.concat(lanes))
  end
end

-- Let a lane be among those that come back, or be so no longer.
local function note_returning(paused, lane, comes_back)
  local others = {}
  for other in string.gmatch(redis.call('HGET', paused, RETURNING) or '', string.rep('.', 7)) do
    if other ~= lane then others[#others + 1] = other end
  end
  if comes_back then others[#others + 1] = lane end
  write_returning(paused, others)
end

-- The paused lane that holds an entry up, or nil; none holds up one that was told to run now. `cache` keeps what
-- was asked, for the length of a script.
local function paused_lane(record, header_end, paused, cache)
  if string.byte(record, header_end + 43) % (2 * RUN_NOW) >= RUN_NOW then return nil end
  for _, lane in ipairs(lanes_of(record, header_end)) do
    if cache[lane] == nil then
      local pause = parse_pause(redis.call('HGET', paused, lane))
      cache[lane] = pause and pause.state == 'p' or false
    end
    if cache[lane] then return lane end
  end
end

-- What is parked in a lane, in the order of due times, at most `count`.
local function parked_in(parked, lane, count)
  -- No due time begins with this byte.
  return redis.call('ZRANGEBYLEX', parked, '[' .. lane, '(' .. lane .. '\255', 'LIMIT', 0, count)
end

-- How many may come back by now at a lane's rate, at most `left`; notes when the next ones may.
local function admitted(pause, now_us, left)
  if pause.rate == 0 then return left end
  local step = math.min(math.max(1, math.floor(pause.rate / STEPS_A_SECOND)), MOST_AT_ONCE)
  local step_us = step / pause.rate * 1000000
  -- Later than a step from now: Redis's clock was set back.
  pause.next_us = math.min(pause.next_us, now_us + step_us)
  if now_us < pause.next_us then return 0 end
  local steps = math.floor((now_us - pause.next_us) / step_us) + 1
  local count = math.min(math.min(steps, STEPS_BEHIND) * step, left)
  if count > 0 then pause.next_us = pause.next_us + steps * step_us end
  return count
end

-- Let an entry come back, by what stands in `parked`, with the member and due time that it had; it may be excused.
-- Returns when it is due, ms, and how many bytes of records that took.
local function unpark_one(there, is_excused, now, keys)
  local kind, member, due, bytes = sub(there, 15, 15), sub(there, 16), number_in(there, 8, 14), 0
  if is_excused and kind == string.lower(kind) then bytes = excuse(keys.records, id_of(member), now) end
  -- Whoever is there already, as Redis stopped a script half-way, may have another due time since.
  redis.call('ZADD', string.upper(kind) == 'L' and keys.due or keys.relay, 'NX', whole(due), member)
  redis.call('ZREM', keys.parked, there)
  return due, bytes
end

-- Let up to `count` entries of a lane come back; a pause that does not count as lateness is excused. Returns how many
-- did, and how many bytes of records that took.
local function unpark(lane, pause, count, now, max_bytes, keys)
  local came, bytes = 0, 0
  for _, there in ipairs(parked_in(keys.parked, lane, count)) do
    if bytes >= max_bytes then break end
    local _, read = unpark_one(there, pause.late == '0', now, keys)
    came, bytes = came + 1, bytes + read
  end
  return came, bytes
end

-- Let come back what may. Returns when there is more, ms, or -1; and how many bytes of records were read.
local function come_back(now_us, max_bytes, keys)
  local lanes = redis.call('HGET', keys.paused, RETURNING)
  if not lanes then return -1, 0 end
  local now, left, bytes, more, others = math.floor(now_us / 1000), BACK, 0, -1, {}
  for lane in string.gmatch(lanes, string.rep('.', 7)) do
    local pause = parse_pause(redis.call('HGET', keys.paused, lane)) or unknown_pause(now_us)
    -- One that was paused anew is not among them: Redis stopped a script half-way.
    local is_back = pause.state == 'b'
    local count = is_back and admitted(pause, now_us, left) or 0
    local came = 0
    if count > 0 and bytes < max_bytes then
      local read
      came, read = unpark(lane, pause, count, now, max_bytes - bytes, keys)
      left, bytes = left - came, bytes + read
    end
    if is_back and #parked_in(keys.parked, lane, 1) == 0 then
      redis.call('HDEL', keys.paused, lane)
    elseif is_back then
      others[#others + 1] = lane
      redis.call('HSET', keys.paused, lane, format_pause(pause))
      local at = pause.rate > 0 and math.max(now, math.ceil(pause.next_us / 1000)) or now
      more = more < 0 and at or math.min(more, at)
    end
  end
  -- Once, as there may be thousands. One whose field is gone, and stands here still, is dropped by the next step.
  if #others * 7 < #lanes then write_returning(keys.paused, others) end
  return more, bytes
end
