--[[ Resumed lanes: their entries come back in the order of due times, at the lane's rate.

Each step of a rate gives turns to the parked entries that were due first, and puts them back to wait. A step that meets
an entry which comes back takes a turn for it. If none is left, or the turns given so far are for earlier due times, it
parks the entry. So it makes no difference which entries were parked before, and by which scanner.
]]
local BACK = 1000 -- most entries that come back in one step
local STEPS_A_SECOND = 10 -- steps of a rate, at least
local MOST_AT_ONCE = 100 -- entries in one of these, so that a step of a high rate is small as well
local STEPS_BEHIND = 10 -- steps to catch up on after a time without a look

-- Rare: most stores have no resumed lane.

-- Return how many may come back by now at a lane's rate, at most `left`; note when the next ones may.
local function admitted(pause, now_us, left)
  if pause.rate == 0 then return left end
  local step = math.min(math.max(1, math.floor(pause.rate / STEPS_A_SECOND)), MOST_AT_ONCE)
  local step_us = step / pause.rate * 1000000
  -- More than a step from now: Redis's clock was set back.
  pause.next_us = math.min(pause.next_us, now_us + step_us)
  if now_us < pause.next_us then return 0 end
  local steps = math.floor((now_us - pause.next_us) / step_us) + 1
  local count = math.min(math.min(steps, STEPS_BEHIND) * step, left)
  if count > 0 then pause.next_us = pause.next_us + steps * step_us end
  return count
end

-- Return the lane in which an entry must wait for its turn; or nil: it may go, and take_turns takes its turn.
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

-- Let an entry of `parked` come back to wait, with its old member and due time. Return that time, ms.
local function unpark_one(there)
  local kind, member, due = parked_kind(there), parked_member(there), parked_due(there)
  -- If Redis stopped a script half-way, the entry may be there already, with a newer due time.
  redis.call('ZADD', string.upper(kind) == 'L' and keys.due or keys.relay, 'NX', whole(due), member)
  redis.call('ZREM', keys.parked, there)
  return due
end

-- Let up to `count` entries of a lane come back; with a late policy, excuse the pause. Return how many came back, the
-- bytes of records read for that, and the due time of the last one, ms.
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

-- Let entries come back that older scanners laid aside, if this release knows their format. Return how many bytes of
-- records were read. They are due, so another step follows, for those that are left.
local function take_up(lanes, max_bytes)
  local came, bytes = 0, 0
  for format = string.byte(FIRST) + 1, string.byte(FORMAT) do
    local some, read = unpark(format_lane(string.char(format)), BACK - came, lanes, max_bytes - bytes)
    came, bytes = came + some, bytes + read
  end
  return bytes
end

-- Let entries come back that may. Return how many bytes of records were read.
local function come_back(lanes, max_bytes)
  local left, bytes = BACK, 0
  for lane in string.gmatch(redis.call('HGET', keys.paused, RETURNING) or '', EACH_LANE) do
    local pause = pause_of(lanes, lane) or unknown_pause(lanes.now_us)
    lanes.known[lane] = pause
    -- A lane that was paused again is listed only because Redis stopped a script half-way.
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

-- The earliest due time of parked entries, ms, by kinds of lanes; read once in a step, as there may be thousands.
local function earliest_parked(lanes)
  if not lanes.earliest then
    lanes.earliest = {}
    local lane, first = lane_behind()
    while lane do
      local kind, due = sub(lane, 1, 1), parked_due(first)
      -- What was laid aside may stay there long after a pause.
      if kind ~= 'f' then lanes.earliest[kind] = math.min(lanes.earliest[kind] or due, due) end
      lane, first = lane_behind(lane)
    end
  end
  return lanes.earliest
end

-- Whether a resumed lane may still have entries: parked there; or due since before, but not yet met by a scanner; or
-- parked in another lane, though they belong to this one as well.
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

-- Forget the lanes whose entries have all come back. Return when the others continue, ms, or -1.
local function look_back(lanes)
  local text, more, others = redis.call('HGET', keys.paused, RETURNING) or '', -1, {}
  for lane in string.gmatch(text, EACH_LANE) do
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
  -- Written once, as there may be thousands. The next step drops a lane that is listed, but has no field.
  if #others * 7 < #text then write_returning(others) end
  save_lanes(lanes)
  return more
end
