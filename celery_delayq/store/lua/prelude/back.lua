--[[ What comes back of a lane that was resumed: in the order of due times, at its rate.

Each step of a rate gives turns to those of what is parked that were due first: they are put back to wait. Whoever meets
something that comes back takes a turn for it, or parks it, where none is left, or those given so far are of an earlier
due time. So it makes no difference what was parked before, and by whom.
]]
local BACK = 1000 -- most entries that come back in one step
local STEPS_A_SECOND = 10 -- in which they come back at a rate, at least
local MOST_AT_ONCE = 100 -- of these, so that a step of a high rate is small as well
local STEPS_BEHIND = 10 -- that are made up for when nobody has looked for a while

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

-- The lane in which an entry has to wait for its turn; or nil: it may go, and takes its turn by take_turns.
local function full_lane(pauses, record, header_end)
  for _, pause in ipairs(pauses) do
    local has_turn = pause.left >= 1 and due_of(record, header_end) <= pause.at
    if pause.rate > 0 and not has_turn and returns_with(pause, record, header_end) then return pause.lane end
  end
end

local function take_turns(pauses, record, header_end)
  for _, pause in ipairs(pauses) do
    if pause.rate > 0 and returns_with(pause, record, header_end) then
      pause.left, pause.is_changed = pause.left - 1, true
    end
  end
end

-- Let an entry come back to wait, by what stands in `parked`, with the member and due time that it had. Returns when
-- that is, ms.
local function unpark_one(there)
  local kind, member, due = parked_kind(there), parked_member(there), parked_due(there)
  -- Whoever is there already, as Redis stopped a script half-way, may have another due time since.
  redis.call('ZADD', string.upper(kind) == 'L' and keys.due or keys.relay, 'NX', whole(due), member)
  redis.call('ZREM', keys.parked, there)
  return due
end

-- Let up to `count` entries of a lane come back; of those with a late policy, what was a pause does not count. Returns
-- how many did, how many bytes of records that took, and when the last one is due, ms.
local function unpark(lane, count, lanes, max_bytes)
  local came, bytes, due = 0, 0, 0
  for _, there in ipairs(parked_in(lane, count)) do
    if bytes >= max_bytes then break end
    local kind = parked_kind(there)
    if kind == string.lower(kind) then
      local id = id_of(parked_member(there))
      local record = redis.call('HGET', keys.records, id)
      local header_end = header_end_of(record)
      if header_end then
        excuse(id, record, header_end, (counted_from(lanes, record, header_end, false, lane)))
      end
      bytes = bytes + #(record or '')
    end
    due, came = unpark_one(there), came + 1
  end
  return came, bytes, due
end

-- Let come back what may. Returns how many bytes of records were read.
local function come_back(lanes, max_bytes)
  local left, bytes = BACK, 0
  for lane in string.gmatch(redis.call('HGET', keys.paused, RETURNING) or '', string.rep('.', 7)) do
    local pause = pause_of(lanes, lane) or unknown_pause(lanes.now_us)
    lanes.known[lane] = pause
    -- One that was paused anew is not among them: Redis stopped a script half-way.
    local is_ready = pause.state == 'b' and bytes < max_bytes and #parked_in(lane, 1) > 0
    if is_ready then
      local count = admitted(pause, lanes.now_us, left)
      local came, read, due = unpark(lane, count, lanes, max_bytes - bytes)
      left, bytes = left - came, bytes + read
      pause.left, pause.at = math.max(pause.left, came), math.max(pause.at, due)
      pause.is_changed = pause.is_changed or pause.rate > 0
    end
  end
  return bytes
end

-- When the earliest of what is parked is due, ms, by the kinds of lanes; asked once in a step, as lanes may be thousands.
local function earliest_parked(lanes)
  if not lanes.earliest then
    lanes.earliest = {}
    local lane, first = lane_behind()
    while lane do
      local kind, due = sub(lane, 1, 1), parked_due(first)
      lanes.earliest[kind] = math.min(lanes.earliest[kind] or due, due)
      lane, first = lane_behind(lane)
    end
  end
  return lanes.earliest
end

-- Whether something may be of a lane that was resumed, and comes back with it: it is parked there; or no scanner has
-- met it since it fell due; or it is parked in another lane, which may be one of its own as well.
local function is_awaited(lane, pause, lanes)
  if #parked_in(lane, 1) > 0 then return true end
  for _, index in ipairs({keys.due, keys.relay, keys.refused, keys.leased}) do
    local head = head_of(index)
    if head >= 0 and head * 1000 <= pause.until_us then return true end
  end
  for kind, due in pairs(earliest_parked(lanes)) do
    if kind ~= sub(lane, 1, 1) and due * 1000 <= pause.until_us then return true end
  end
  return false
end

-- Forget the lanes of which all has come back. Returns when there is more of the others, ms, or -1.
local function look_back(lanes)
  local text, more, others = redis.call('HGET', keys.paused, RETURNING) or '', -1, {}
  for lane in string.gmatch(text, string.rep('.', 7)) do
    local pause = pause_of(lanes, lane)
    local is_back = pause and pause.state == 'b'
    if is_back and not is_awaited(lane, pause, lanes) then
      redis.call('HDEL', keys.paused, lane)
      lanes.known[lane] = false
    elseif is_back then
      others[#others + 1] = lane
      if #parked_in(lane, 1) > 0 then
        local at = pause.rate > 0 and math.max(lanes.now, math.ceil(pause.next_us / 1000)) or lanes.now
        more = more < 0 and at or math.min(more, at)
      end
    end
  end
  -- Once, as there may be thousands. One whose field is gone, and stands here still, is dropped by the next step.
  if #others * 7 < #text then write_returning(others) end
  save_lanes(lanes)
  return more
end
