--[[ load: store dumped entries as they were; each is stored or refused by itself.

change   a call: see prelude/call.lua
rows...    entries    of each entry, one after the other:
         id           the task's id
         due          its due time, unix ms
         created      when it was scheduled, us, 16 digits; empty: now, even if its id has left the store
         header       the record's header
         body         the record's part from the flags on
         template     the template that `body` shares; empty if it comes with an entry before this one
         place        waiting | refused | behind | dead
         ms           refused: its next try, dead: since when, behind: its due time, unix ms; else 0
         claim        empty; or attempts, refusals, and 1 if it may have been delivered, else 0, with colons between
         error        its last error; or empty
         named        1: it holds its key; or 0

Returns  the answer, a text with a word for each entry: loaded; or why it was not: here, it exists already, with that
         time of scheduling; left, an entry with its id left after that; taken, its id is another entry's; held, its
         key is, and after a colon the id of that one
Cost     O(log N) an entry; the caller bounds entries and bytes
Keeps    existing entries; an id has one record and one place, a key has one waiting entry. One that waited
         behind another still does: its holder may come later. If none has come in a minute, it comes forward
]]
return change(request, function(call)
  -- Nothing is rolled back, so any step that can fail comes before the first write, that of `meta`.
  local back = begin_return(call)
  for _, entry in ipairs(entries) do
    if is_return_stale(back, entry) then return nil, 'stale' end
  end

  local told, wrote = {}, false
  for _, entry in ipairs(entries) do
    told[#told + 1] = bring_back(back, entry)
    wrote = wrote or told[#told] == 'loaded'
  end
  if back.earliest < math.huge then wake_for(back.earliest, call.now, call.promise) end
  -- Nothing was written, so nothing is refused for want of memory.
  if not wrote then allow_when_full(keys.templates) end
  return table.concat(told, ' ')
end)
