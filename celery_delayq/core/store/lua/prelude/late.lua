--[[ Late policies: an entry that would leave too late does not leave at all.

policy  the grace period, ms, ':', and its start, if that is after the due time: unix ms, 13 digits
]]
-- The entries that a step skips; an argument for `depart`.
local function new_skips()
  return {ids = {}, shared = {}, claimed = true, failed = true, young = {}, owed = {}, told = {}}
end

-- Rare: most entries are never too late.

-- The grace period of an entry, ms, and its start in the record; or nil: it has no readable policy.
local function policy_of(record, header_end)
  if not has_flag(record, header_end, LATE_POLICY) then return nil end
  local grace, excused = string.match(extras_of(record, header_end).policy or '', '^(%d+):(%d+)$')
  return tonumber(grace), tonumber(excused)
end

-- When an entry's grace period starts, ms, and how long it is. It starts at its due time, at its excuse, or at the end
-- of the last pause before which it was not too late, whichever of its lanes that was in. Or nil.
-- `is_open`: a lasting pause counts as over by now; `own`: the lane in which it was parked until now.
local function counted_from(lanes, record, header_end, is_open, own)
  local grace, excused = policy_of(record, header_end)
  if not grace then return nil end
  local due, now, spans = due_of(record, header_end), math.ceil(lanes.now_us / 1000), {}
  local from = math.max(due, excused)
  for _, pause in ipairs(pauses_of(lanes, record, header_end)) do
    for began, upto, over in string.gmatch(pause.spans, SPAN) do
      spans[#spans + 1] = {tonumber(began), tonumber(upto), tonumber(over)}
    end
    if pause.late == '0' and (is_open or pause.state == 'b') then
      local is_over = pause.state == 'b' and pause.lane ~= own
      local upto = is_over and math.ceil(pause.until_us / 1000) or math.huge
      spans[#spans + 1] = {math.floor(pause.since / 1000), upto, now}
    end
  end
  table.sort(spans, function(one, other) return one[1] < other[1] end)
  for _, span in ipairs(spans) do
    -- A pause by whose end the entry had come back does not excuse it again.
    if span[1] <= from + grace and (from < span[2] or from == span[2] and excused < due) then
      from = math.max(from, math.min(span[3], now))
    end
  end
  return from, grace
end

-- How many ms an entry has been due, if that is more than its policy allows; or nil, and when its grace period starts.
local function too_late_by(lanes, record, header_end)
  local from, grace = counted_from(lanes, record, header_end)
  if from and lanes.now > from + grace then return lanes.now - due_of(record, header_end) end
  return nil, from
end

-- Return a record whose grace period starts at a time; or nil, if that starts later, or there is none.
local function with_excuse(record, header_end, from)
  local _, since = policy_of(record, header_end)
  if not from or not since or from <= since then return nil end
  local policy = string.find(record, '\0', extras_start(record, header_end), true)
  local at = string.match(record, '^%z%d+():%d%d%d%d%d%d%d%d%d%d%d%d%d%z', policy)
  return at and sub(record, 1, at) .. string.format('%013.0f', from) .. sub(record, at + 14)
end

-- Start the grace period at a time, if it does not start later. This does not count as a change by its owner.
local function excuse(id, record, header_end, from)
  local text = with_excuse(record, header_end, from)
  if text then redis.call('HSET', keys.records, id, text) end
end

-- An entry is parked: keep the excuse of pauses in other lanes, which may be forgotten before it comes back. The excuse
-- of its own lane is added then.
local function excuse_before(lane, lanes, id, record, header_end)
  local pause = pause_of(lanes, lane)
  if pause.state == 'p' or pause.late == '1' then
    excuse(id, record, header_end, (counted_from(lanes, record, header_end)))
  end
end

-- Note that an entry, due for `ms`, is skipped; how: c, or u if a copy may have been delivered.
local function note_skip(skips, member, record, header_end, message, ms, how, now_us)
  local id, name = id_of(member), template_of(record, header_end)
  if #skips.ids == 0 then
    skips.recent = recent_of(now_us)
  end
  local why = 'skipped: ' .. whole(math.floor(ms / 1000)) .. ' s late'
  skips.ids[#skips.ids + 1] = id
  skips.told[#skips.told + 1], skips.told[#skips.told + 2] = id, why
  skips.owed[#skips.owed + 1] = {id = id, how = how, message = message, why = why}
  if name then skips.shared[name] = (skips.shared[name] or 0) + 1 end
  note_young(skips.young, skips.recent, id, record, header_end)
  note_extras(skips, id, member, record, header_end)
end

-- Remove skipped entries; the caller clears their places. If `owes`, scanners may store REVOKED at once, as no caller
-- will do it.
local function leave_skipped(skips, owes, now_us)
  local now = math.floor(now_us / 1000)
  local from_now_on = {now_us = now_us, now = now, timeout = 0}
  fence_young(skips.young, now_us)
  for _, one in ipairs(owes and skips.owed or {}) do
    owe(from_now_on, one.id, one.how, one.message, one.why)
  end
  depart(skips, 's', now)
end
