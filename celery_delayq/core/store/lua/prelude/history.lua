--[[ The history: the latest events of entries, if `meta` has a setting for it.

`history` in `meta`: how many, 1..10000, a blank, and 0 to leave out an event that equals the one before, or 1.

event  1 byte  s: scheduled, h: handed over, c: cancelled, r: replaced, k: skipped, d: dead,
                 b: repaired, it waits again, m: rescheduled, e: edited, n: run now, t: tried again, x: removed;
                 o: its cancel was undone; p: paused, u: resumed, of a lane
       2..14   when, ms, 13 digits
       15..27  due time, ms, 13 bytes, blanks after the digits; only blanks if the record cannot be read
       28..39  task and queue, labels as in a record, or blanks
       40..42  length of the id, 3 digits; the id; and the unique key, if it has one. Of a lane and of many entries
               there is no id; a lane has q or t, and the name of the queue or task, in place of the key
               then NUL and who did it, if somebody was named; and of many entries, NUL and how many

A step notes events, and writes them at its end.
]]
-- kept: whether there is a history; nil: not read yet
-- setting: from `meta`; events: noted by this step
local past = {events = {}}

-- Read the setting, once a step.
local function begin_history(setting)
  if past.kept ~= nil then return end
  past.kept = type(setting) == 'string' and string.find(setting, '^%d+ [01]$') ~= nil
  past.setting = setting
end

-- Rare: a store has a history only if a setting says so.

-- The part of an event about an entry; without due time and labels if the record cannot be read.
local function told_of(due_and_labels, id, key)
  return (due_and_labels or string.rep(' ', 25)) .. string.format('%03d', #id) .. id .. (key or '')
end

-- The same, from the entry's record.
local function told_by(record, header_end, id, key)
  local told = due_text(record, header_end) .. part_of(record, header_end, TASK, FORM)
  return told_of(told, id, key)
end

local function note_event(what, now, told)
  past.events[#past.events + 1] = what .. string.format('%013.0f', now) .. told
end

-- Let `depart` note an event for an entry among those that leave.
local function note_leaving(leaving, told)
  leaving.events = leaving.events or {}
  leaving.events[#leaving.events + 1] = told
end

-- Note the events of entries that have left; `how`: as their tombstones say, or nil: they were replaced.
local function note_left(leaving, how, now)
  local kind = leaving.kind or leaving.is_replaced and 'r' or how == 'u' and 'c' or how == 's' and 'k' or how or 'r'
  for _, told in ipairs(leaving.events or {}) do note_event(kind, now, told) end
end

-- The part in which successive events must differ: the kind, the task, and the key, or else the id.
local function subject_of(event)
  local id_end = 42 + (tonumber(sub(event, 40, 42)) or 0)
  if id_end == 42 then return event end -- of a lane or of many
  local key, who = string.match(sub(event, id_end + 1), '^(%Z*)(.*)$')
  return sub(event, 1, 1) .. sub(event, 28, 33) .. (key == '' and 'i' .. sub(event, 43, id_end) or 'k' .. key) .. who
end

-- The events, without those that equal the one before; `last` is the last one written.
local function without_repeats(last)
  local rest, before = {}, last and subject_of(last)
  for _, event in ipairs(past.events) do
    local subject = subject_of(event)
    if subject ~= before then rest[#rest + 1] = event end
    before = subject
  end
  return rest
end

-- Write the events, newest first. Room is made first, so the list never exceeds its length. If that is not allowed, or
-- the key is another program's, nothing is written; the step itself is done.
-- `operation`: the call's name, which ends with who makes it; see prelude/call.lua.
local function write_history(operation)
  local events, most, who = past.events, 1000, sub(operation or '', 13)
  if #events == 0 then return end
  for at, event in ipairs(who ~= '' and events or {}) do events[at] = event .. '\0' .. who end
  local text, repeats = string.match(past.setting, '^(%d+) ([01])$')
  local length = tonumber(text)
  if repeats == '0' then events = without_repeats(redis.pcall('LRANGE', keys.history, 0, 0)[1]) end
  local first = math.max(1, #events - length + 1)
  local left = length - (#events - first + 1) -- of the existing ones
  if first > #events or redis.pcall('LTRIM', keys.history, left > 0 and 0 or 1, math.max(0, left - 1)).err then return end
  for from = first, #events, most do
    redis.pcall('LPUSH', keys.history, unpack(events, from, math.min(from + most - 1, #events)))
  end
end
