--[[ The history: the last things that happened to entries, if `meta` says that they are kept.

`history` in `meta`: how many, 1..10000, a blank, and 0 where an event that equals the one before is left out, or 1.

event  1 byte  s: scheduled, h: handed over, c: cancelled, r: replaced, k: skipped, d: dead
       2..14   when, ms, 13 digits
       15..27  due time, ms, 13 bytes, blanks after the digits; blanks only where the record cannot be read
       28..39  task and queue, labels as in a record, or blanks
       40..42  length of the id, 3 digits; the id; and the unique key, if it has one

A step notes what happens, and writes it down in the end. `happened` has the events that it noted; false: there
is no history; nil: nobody has looked yet.
]]
local happened = nil
local EVENTS = 1000 -- of one command
local UNKNOWN = string.rep(' ', 25) -- due time and labels

-- Whether there is a history, by what `meta` says of it; asked once a step.
local function begin_history(setting)
  if happened ~= nil then return end
  local length, repeats = string.match(type(setting) == 'string' and setting or '', '^(%d+) ([01])$')
  happened = length and {length = tonumber(length), repeats = repeats == '1'} or false
end

-- What an event tells of an entry.
local function told_of(due_and_labels, id, key)
  return due_and_labels .. string.format('%03d', #id) .. id .. (key or '')
end

local function note_event(what, now, told)
  happened[#happened + 1] = what .. string.format('%013.0f', now) .. told
end

-- What two events that follow each other have to differ in: what happened, the task, the key, or else the id.
local function subject_of(event)
  local id_end = 42 + (tonumber(sub(event, 40, 42)) or 0)
  local key = sub(event, id_end + 1)
  return sub(event, 1, 1) .. sub(event, 28, 33) .. (key == '' and 'i' .. sub(event, 43, id_end) or 'k' .. key)
end

-- What happened, without what equals the event before it; `last` is the one that was written last.
local function without_repeats(events, last)
  local rest, before = {}, last and subject_of(last)
  for _, event in ipairs(events) do
    local subject = subject_of(event)
    if subject ~= before then rest[#rest + 1] = event end
    before = subject
  end
  return rest
end

-- Write down what happened, the newest first. Room is made before: the list is never longer than it may be.
-- Where that is not allowed, or something foreign is there, nothing is written; the step itself is done.
local function write_history(history)
  if not happened or #happened == 0 then return end
  local events, length = happened, happened.length
  if not happened.repeats then
    events = without_repeats(events, redis.pcall('LRANGE', history, 0, 0)[1])
  end
  local first = math.max(1, #events - length + 1)
  local left = length - (#events - first + 1) -- of those that are there
  if first > #events or redis.pcall('LTRIM', history, left > 0 and 0 or 1, math.max(0, left - 1)).err then return end
  for from = first, #events, EVENTS do
    redis.pcall('LPUSH', history, unpack(events, from, math.min(from + EVENTS - 1, #events)))
  end
end
