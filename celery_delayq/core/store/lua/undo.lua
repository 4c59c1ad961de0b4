--[[ undo: bring back entries that were cancelled, as they were; each comes back or is refused by itself.

change   a call: see prelude/call.lua
flag     hurries  1: one whose due time has come since is due now; 0: it is refused
flag     tells    1: return the messages; or 0
text...  ids      1 to 100, each once

reply    of place message

Returns  the answer, a text with a word for each id: done, and after a colon its due time, ms; or why not: unknown, no
         line of it is kept; revoked, its id was sent to the workers; overdue, its due time has come since, and after a
         colon that; and as of load.lua here, left, taken, and held with that id. And rows for the caller: the place of
         one that is back, from 1, and its message
Cost     O(log N) an entry; the caller bounds entries
Keeps    existing entries, as load.lua does
]]
-- The messages of those that are back.
local function told_of_those(answer)
  local told, at, cache = {}, 0, {}
  if not tells then return told end
  for word in string.gmatch(answer, '%S+') do
    at = at + 1
    local record = string.find(word, '^done') and redis.call('HGET', keys.records, ids[at])
    local header_end = header_end_of(record)
    local message = header_end and whole_message(record, header_end, ids[at], cache)
    if message then told[#told + 1], told[#told + 2] = at, message end
  end
  return told
end

-- Forget that an entry left: it is back.
local function drop_own_tombstones(entry, key)
  for _, name in ipairs({entry.id, key and name_of_key(key) or nil}) do
    for _, hash in ipairs({keys.tombstones, keys.tombstones_old}) do
      local stone = redis.call('HGET', hash, name)
      if stone and tonumber(sub(stone, 2, 14)) == entry.left_ms then redis.call('HDEL', hash, name) end
    end
  end
end

return change(request, function(call)
  local back, found, words = begin_return(call), {}, {}
  for at, id in ipairs(ids) do
    local line = kept_line(id)
    local entry = line and entry_in(id, line)
    if entry and is_return_stale(back, entry) then return nil, 'stale' end
    found[at] = entry or false
    words[at] = line == 'revoked' and line or 'unknown'
  end

  local wrote = false
  for at, entry in ipairs(found) do
    if entry then
      local due = tonumber(entry.due)
      -- One that was overdue already, or waited for something else, is as it was.
      local is_over = entry.place == 'waiting' and entry.left_ms < due and due <= call.now
      if is_over and not hurries then
        words[at] = 'overdue:' .. entry.due
      else
        if is_over then entry.due = whole(call.now) end
        words[at] = bring_back(back, entry)
      end
      if words[at] == 'loaded' then
        wrote, words[at] = true, 'done:' .. entry.due
        drop_line(entry.id)
        local extras = extras_of_body(entry.body)
        local key = extras and extras.key
        drop_own_tombstones(entry, key)
        local told = past.kept and told_of(padded(entry.due) .. labels_in(entry.body), entry.id, key)
        if told then note_event('o', call.now, told) end
      end
    end
  end
  if back.earliest < math.huge then wake_for(back.earliest, call.now, call.promise) end
  -- Nothing was written, so nothing is refused for want of memory.
  if not wrote then allow_when_full(keys.templates) end
  local answer = table.concat(words, ' ')
  return answer, told_of_those(answer)
end, {}, told_of_those)
