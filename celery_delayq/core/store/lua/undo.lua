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

-- Start the grace period of an entry at a time, if it has one.
local function excuse_from(id, now)
  local record = redis.call('HGET', keys.records, id)
  excuse(id, record, header_end_of(record), now)
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
      local is_past = due <= call.now
      local waits = entry.place == 'waiting'
      -- One that was overdue already, or waited for something else, is as it was.
      if is_past and waits and entry.left_ms < due and not hurries and not met_by(back, entry) then
        words[at] = 'overdue:' .. entry.due
      else
        if is_past and waits and hurries then entry.due = whole(call.now) end
        words[at] = bring_back(back, entry)
      end
      if words[at] == 'loaded' then
        wrote, words[at] = true, 'done:' .. entry.due
        -- It is not late for the time in which it was cancelled.
        if is_past and entry.place ~= 'dead' then excuse_from(entry.id, call.now) end
        drop_line(entry.id)
        count_back(entry.bulk)
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
