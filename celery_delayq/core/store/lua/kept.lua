--[[ kept: an entry that was cancelled, if an undo of it is kept.

text    id  its id

reply   when, bulk, word, record, template

Returns  nothing, if none is kept; or when it was cancelled, us; the name of its bulk, or '-'; a word, SCHEDULED or DEAD,
         with its facts, see prelude/targets.lua; its record; and the template that it shares, or ''
Cost     O(1)
Keeps    changes nothing
]]
local line = kept_line(id)
local entry = line and entry_in(id, line)
if not entry then return {} end
local word = (entry.place == 'dead' and 'DEAD' or 'SCHEDULED') .. ':h' .. #entry.header
if entry.error ~= '' then word = word .. quoted('e' .. entry.error) end
return {entry.when, entry.bulk, word, entry.record, entry.template}
