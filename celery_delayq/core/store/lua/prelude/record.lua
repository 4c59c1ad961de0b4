--[[ The clock; the layout of members and records.

member   6 bytes insertion number, big-endian, then the id: equal due times keep insertion order

record   1 byte    its format, '1': the lowest that a release must know to deliver or edit it
         1 byte    L: bound for a list in this Redis; R: for a relay through the broker
         length of the destination in decimal, ':', the destination (for L, the list's key)
         -- here the header ends; positions from here
         1..6      insertion number, as in the member: twice a count, and 1 if the record is larger than SMALL;
                   a reschedule keeps it
         7..19     due time, ms, 13 bytes, blanks after the digits
         20..35    when it was scheduled, us, 16 digits; a change keeps it
         36..42    its last change, us, big-endian; each change of an entry has a later one
         43        flags, '0' plus the sum of those that are set: 1 has a key, 2 has tags, 4 has a late policy,
                   8 is to run now, 16 was released; with one of the first three, extras follow at the end:
                   see extras.lua
         44..49    task: the first 6 bytes of the SHA-1 of its name
         50..55    queue that it was sent with: the same of its name
         56        I: the message follows, as JSON up to the due time at its end
                   T: it shares a template: 12 bytes that name it, then the values, in 6 lines; in the fifth, after
                   the kwargs for logs, the headers that may differ with each call
template the message's JSON, in 10 lines, with a value between each two; see message_of
         Its name is the first 12 bytes of its text's SHA-1, so a damaged one is not pushed.

A later format keeps all of this up to the name of the template, and the extras. It may add flags, letters, and extras that
begin with \xff; an even letter shares a template. It may change the message, the destination of a relay, and templates. So a
release that is older than a record finds, cancels, moves and pauses it, and its scanners lay it aside for one that can
read the rest: see format_lane.

To a script a message is bytes: it joins and cuts them, and never parses them.
]]
local FORMAT = '1' -- the newest format that this release reads
local FIRST = '1' -- the format that each release reads

-- The start of each part, after the header.
local DUE = 7

local CREATED = 20
local CHANGED = 36
local FLAGS = 43
local TASK = 44
local QUEUE = 50
local FORM = 56
local MESSAGE = 57
local DIFFERING = 69 -- after the name of a template
local NO_RECORD = 'no record' -- why an entry is dead whose record Redis has deleted
local RECORDLESS = '\0\0\0\0\0\0' -- begins its member among the dead, as its number is not known
local SOUND = '^%d+ *%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d.......[0-O]............[IT]$'
local BEYOND_SOUND = '^%d+ *%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d.......[0-~]............%u$'
local AHEAD = 250000 -- us by which a request, or a change, may be ahead of Redis's clock
local EXTRAS = 8 -- the flags of a record with extras are no multiple of this
local TIMES = '^%d+()' -- the end of digits: usually both times are all digits, and the next byte is none
local RELEASED = 16 -- flag
local SMALL = 4000 -- bytes: records up to this are read without a look at their sizes
local sub = string.sub

local function clock_us()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- The millisecond in which a time in us is due. A future time is rounded up, so that nothing is early; a past one is due
-- in the current millisecond, so that the very next look finds it.
local function due_in_ms(us, now_us)
  local ms = math.ceil(us / 1000)
  return us > now_us and ms or math.min(ms, math.floor(now_us / 1000))
end

-- The longest that a call may last, in ms, from `meta`; nil if there is no valid value.
local function timeout_of(text)
  local ms = tonumber(text or '')
  return ms and ms > 0 and ms <= 60000 and ms or nil
end

-- The text of a whole number: `tostring` keeps 14 digits only.
local function whole(number)
  return string.format('%.0f', number)
end

local function id_of(member)
  return sub(member, 7)
end

-- A number in 6 bytes, as they sort.
local function six_bytes(number)
  local floor = math.floor
  return string.char(floor(number / 2^40) % 256, floor(number / 2^32) % 256, floor(number / 2^24) % 256,
    floor(number / 2^16) % 256, floor(number / 2^8) % 256, number % 256)
end

-- The last number, from `meta`; nil if it cannot have been counted. (`tonumber` reads '1e3' as well.)
local function last_number(text)
  local number = tonumber(text or '')
  return number and number >= 0 and number < 2^47 and whole(number) == text and number or nil
end

-- Take so many numbers; return the last of them. `lost`: `meta` had none when the call began.
local function take_numbers(count, lost)
  return redis.call('HINCRBY', keys.meta, 'seq', whole(count + (lost and numbers_anew() or 0)))
end

-- Whether the record of a member may be larger than SMALL.
local function is_large(member)
  return (string.byte(member, 6) or 1) % 2 == 1
end

-- A time in us, in 7 bytes.
local function seven_bytes(us)
  return string.char(math.floor(us / 2^48) % 256) .. six_bytes(us)
end

-- Read such a number, of 6 or 7 bytes. (Another program's may be shorter.)
local function number_in(text, first, last)
  local a, b, c, d, e, f, g = string.byte(text, first, last)
  local number = (((((a or 0) * 256 + (b or 0)) * 256 + (c or 0)) * 256 + (d or 0)) * 256 + (e or 0)) * 256 + (f or 0)
  return last - first == 6 and number * 256 + (g or 0) or number
end

-- The insertion number that a member begins with.
local function number_of(member)
  return number_in(member, 1, 6)
end

-- The same without the last bit, which tells the size of the record and may change with an edit.
local function serial_of(member)
  return math.floor(number_of(member) / 2)
end

-- A part of a record, up to the beginning of the next part.
local function part_of(record, header_end, part, next_part)
  return sub(record, header_end + part, header_end + next_part - 1)
end

-- The insertion number, 6 bytes.
local function order_of(record, header_end)
  return sub(record, header_end + 1, header_end + DUE - 1)
end

-- The due time, 13 bytes.
local function due_text(record, header_end)
  return sub(record, header_end + DUE, header_end + CREATED - 1)
end

local function due_of(record, header_end)
  return tonumber(due_text(record, header_end))
end

-- When it was scheduled, us, 16 digits.
local function created_of(record, header_end)
  return sub(record, header_end + CREATED, header_end + CHANGED - 1)
end

-- The last change of an entry, 7 bytes: its scheduling, or a later one.
local function changed_bytes(record, header_end)
  return sub(record, header_end + CHANGED, header_end + FLAGS - 1)
end

-- The same as a number, us.
local function changed_of(record, header_end)
  return number_in(record, header_end + CHANGED, header_end + FLAGS - 1)
end

-- The sum of the flags that are set.
local function flags_of(record, header_end)
  return string.byte(record, header_end + FLAGS) - 48
end

local function has_flag(record, header_end, flag)
  return flags_of(record, header_end) % (2 * flag) >= flag
end

-- Whether a record ends in extras.
local function ends_in_extras(record, header_end)
  return flags_of(record, header_end) % EXTRAS > 0
end

local function task_of(record, header_end)
  return sub(record, header_end + TASK, header_end + QUEUE - 1)
end

local function queue_of(record, header_end)
  return sub(record, header_end + QUEUE, header_end + FORM - 1)
end

-- Task and queue, in a record's part from the flags on.
local function labels_in(body)
  return part_of(body, 1 - FLAGS, TASK, FORM)
end

-- The part that neighbours usually have in common: from the flags to the name of the template.
local function likeness_of(record, header_end)
  return sub(record, header_end + FLAGS, header_end + DIFFERING - 1)
end

-- Due time, time of scheduling and last change.
local function times_of(record, header_end)
  return sub(record, header_end + DUE, header_end + FLAGS - 1)
end

-- Whether both times are all digits, as they usually are.
local function has_times(record, header_end)
  return string.match(record, TIMES, header_end + DUE) == header_end + CHANGED
end

-- Whether a record has a format that this release does not know.
local function is_beyond(record)
  return string.byte(record) > string.byte(FORMAT)
end

-- Whether the part after the header can be read: due time, time of scheduling, flags, form, extras.
local function is_sound(record, header_end)
  if #record < header_end + MESSAGE then return false end
  local flags, form = flags_of(record, header_end), string.byte(record, header_end + FORM)
  if flags > 0 and flags % EXTRAS > 0 and not extras_start(record, header_end) then return false end
  if is_beyond(record) then return string.find(part_of(record, header_end, DUE, MESSAGE), BEYOND_SOUND) end
  if has_times(record, header_end) then
    return (form == 73 or form == 84) and flags >= 0 and flags < 2 * RELEASED
  end
  return string.find(part_of(record, header_end, DUE, MESSAGE), SOUND)
end

-- The end of a record's destination; or nil, and the record's defect.
local function header_end_of(record)
  if not record then return nil, NO_RECORD end
  local length, at = string.match(record, '^.(%d+):()', 2)
  if not string.find(record, '^[1-9]') then
    return nil, 'record format ' .. string.format('%q', sub(record, 1, 1)) .. ' is unknown'
  end
  if not length then return nil, 'record has no destination' end
  local header_end = at - 1 + length
  if not is_sound(record, header_end) then return nil, 'record is damaged' end
  return header_end
end

local function destination_of(record, header_end)
  return sub(record, string.find(record, ':', 3, true) + 1, header_end)
end

local function member_of(record, header_end, id)
  return order_of(record, header_end) .. id
end

-- A due time as a record has it. (Not by string.format: usually the text exists, and printing a number is slow.)
local function padded(text)
  return text .. string.rep(' ', 13 - #text)
end

-- A new record; `body` is its part from the flags on.
local function record_of(header, order, due, created, changed, body)
  return header .. order .. padded(due) .. created .. changed .. body
end

-- The name of the template that a record shares, or nil: the letters of those that do are even.
local function template_of(record, header_end)
  if string.byte(record, header_end + FORM) % 2 == 0 then
    return sub(record, header_end + MESSAGE, header_end + DIFFERING - 1)
  end
end

-- The same for a new record's part from the flags on.
local function name_in(body)
  return template_of(body, 1 - FLAGS)
end

-- The last change, in 7 bytes, for a change made now. It is later than the one before, which distinguishes all states of
-- an entry; but if the clock was set back, it is now: else this change would prove nothing either.
local function changed_next(record, header_end, now_us)
  local before = changed_of(record, header_end)
  return seven_bytes(before > now_us + AHEAD and now_us or math.max(now_us, before + 1))
end

local function with_due(record, header_end, text, now_us)
  return sub(record, 1, header_end + DUE - 1) .. padded(text) .. created_of(record, header_end)
    .. changed_next(record, header_end, now_us) .. sub(record, header_end + FLAGS)
end

-- Distinguishes this state of an entry from its others, and from other entries under its id.
local function stamp_of(record, header_end)
  return order_of(record, header_end) .. changed_bytes(record, header_end)
end

-- Whether its message has an `eta`: it is delivered at once, and cannot be rescheduled.
local function is_released(record, header_end)
  return has_flag(record, header_end, RELEASED)
end

-- Rare: most entries have no extras, few flags change, and few stores lose `meta`.

-- The start of the numbering in a store that lost `meta` with the last number: above all numbers given, if there were up
-- to 32 a millisecond. It fits into 47 bits until the year 2109.
local function numbers_anew()
  if redis.call('HLEN', keys.records) == 0 then return 0 end
  return math.floor(clock_us() / 1000) * 32
end

-- The start of the extras at the end of a text, which has the parts of a record after `from`; or nil.
local function extras_start(text, from)
  local length = string.match(sub(text, -4), '^%d%d%d%d$')
  local start = length and #text - 3 - length
  if start and start > from + FORM and string.find(text, '%z[^%z]*%z', start) then return start end
end

local function with_flags(record, header_end, flags)
  return sub(record, 1, header_end + FLAGS - 1) .. string.char(48 + flags) .. sub(record, header_end + TASK)
end
