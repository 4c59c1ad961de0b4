--[[ The history: the latest events of entries, and the latest changes of many, if `meta` has a setting for it.

`history` in `meta`: how many of each, 1..10000, a blank, and 0 to leave out an event that equals the one before, or 1.

event  1 byte  s: scheduled, h: handed over, c: cancelled, r: replaced, k: skipped, d: dead,
                 b: repaired, it waits again, m: rescheduled, e: edited, n: run now, t: tried again, x: removed;
                 o: its cancel was undone; p: paused, u: resumed, of a lane
       2..14   when, ms, 13 digits
       15..27  due time, ms, 13 bytes, blanks after the digits; only blanks if the record cannot be read
       28..39  task and queue, labels as in a record, or blanks
       40..42  length of the id, 3 digits; the id; and the unique key, if it has one. Of a lane and of many entries
               there is no id; a lane has q or t, and the name of the queue or task, in place of the key
               then NUL and who did it, if somebody was named or more follows; of a bulk, NUL and how many entries, NUL
               and its name

A step notes events, and writes them at its end. There are three lists, each with a bound of its own:

history          events of entries that were changed by themselves
history_changes  a line for each change of many, and for each pause
history_parts    events of the entries that a change of many changed

A change of many, a bulk, takes many steps, perhaps of several processes. Its calls have its name; see author_of. Each
step adds the number of its entries to the bulk's line, so the line is right even if a process dies. If many bulks
take turns, a bulk can get another line; readers add them up, as they do with those of other shards.
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

-- Add events to a list, newest first. Room is made first, so the list never exceeds its length. If that is not allowed, or
-- the key is another program's, nothing is written; the step itself is done.
local function push_events(key, events)
  local most, length = 1000, tonumber(string.match(past.setting, '^%d+'))
  local first = math.max(1, #events - length + 1)
  local left = length - (#events - first + 1) -- of the existing ones
  if first > #events or redis.pcall('LTRIM', key, left > 0 and 0 or 1, math.max(0, left - 1)).err then return end
  for from = first, #events, most do
    redis.pcall('LPUSH', key, unpack(events, from, math.min(from + most - 1, #events)))
  end
end

-- Write the events.
local function write_history()
  local events = past.events
  if #events > 0 and string.sub(past.setting, -1) == '0' then
    events = without_repeats(redis.pcall('LRANGE', keys.history, 0, 0)[1])
  end
  if #events > 0 then push_events(keys.history, events) end
end

-- Who makes a call, and the name of the bulk that it is a step of; each is empty without one.
local function author_of(operation)
  return string.match(sub(operation, 13), '^(%Z*)%z?(%Z*)$')
end

-- Count entries in a bulk's line. That comes first again; the others stay in their order.
local function count_in_line(event, who, bulk, count)
  local lines, newer = redis.pcall('LRANGE', keys.history_changes, 0, 19), {}
  local pattern = '^' .. sub(event, 1, 1) .. '%d+ *000%z(%Z*)%z(%d+)%z(%Z*)$'
  for at, line in ipairs(lines) do
    local by, before, name = string.match(line, pattern)
    if name == bulk and by == who then
      if redis.pcall('LTRIM', keys.history_changes, at, -1).err then return end
      count = count + tonumber(before)
      break
    end
    table.insert(newer, 1, line)
    if at == #lines then newer = {} end
  end
  newer[#newer + 1] = sub(event, 1, 14) .. told_of(nil, '', table.concat({'', who, whole(count), bulk}, '\0'))
  push_events(keys.history_changes, newer)
end

-- Write the events of a call, with its author.
local function write_calls_history(operation)
  local events, who, bulk = past.events, author_of(operation)
  local is_part, tail = bulk ~= '' and #events > 0, who ~= '' and '\0' .. who or ''
  if is_part then
    count_in_line(events[#events], who, bulk, #events)
    tail = '\0' .. who .. '\0\0' .. bulk
  end
  for at, event in ipairs(events) do events[at] = event .. tail end
  if is_part then push_events(keys.history_parts, events) else write_history() end
end
