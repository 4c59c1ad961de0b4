--[[ note: add a lane's event to the changes of the history, if there is one.

text     what   its first byte: see prelude/history.lua
text     lane   q or t, and the name of a queue or task; empty for all
text     who    who did it, or empty

Returns  1, or 0: there is no history
Cost     O(1)
Keeps    entries
]]
begin_history(redis.call('HGET', keys.meta, 'history'))
if not past.kept then return 0 end
note_event(what, math.floor(clock_us() / 1000), told_of(nil, '', lane .. (who ~= '' and '\0' .. who or '')))
push_events(keys.history_changes, past.events)
return 1
