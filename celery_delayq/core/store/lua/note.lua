--[[ note: add an event of a lane or of many entries to the history, if there is one.

text     what   its first byte: see prelude/history.lua
text     lane   q or t, and the name of a queue or task; empty for all, and for many entries
number   count  how many entries; 0: a lane
text     who    who did it, or empty

Returns  1, or 0: there is no history
Cost     O(1)
Keeps    a change of many goes on in steps: with the same one before, within a minute, it becomes one event
]]
local MINUTE = 60000
begin_history(redis.call('HGET', keys.meta, 'history'))
if not past.kept then return 0 end
local now = math.floor(clock_us() / 1000)
local last = count > 0 and redis.call('LRANGE', keys.history, 0, 0)[1] or ''
local when, by, before = string.match(last, '^' .. what .. '(%d+) *000%z(%Z*)%z(%d+)$')
if when and by == who and now - tonumber(sub(when, 1, 13)) < MINUTE then
  redis.call('LTRIM', keys.history, 1, -1)
  count = count + tonumber(before)
end
local tail = count > 0 and '\0' .. who .. '\0' .. whole(count) or who ~= '' and '\0' .. who or ''
note_event(what, now, told_of(nil, '', lane .. tail))
write_history()
return 1
