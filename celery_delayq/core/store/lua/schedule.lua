--[[ schedule: store entries until they are due; each is scheduled or refused by itself.

change   a call: see prelude/call.lua
number   latest       greatest due time allowed, unix ms
flag     supersede    1: the caller is this very task, running: an entry that may have been delivered gives way
text     revokes      for whom REVOKED must be stored: none; replaced, those that give way; or all: also a new one that gives
                      way to an existing one, as its id was given out
flag     tells        1: return the messages of those that give way; or 0
flag     unless_left  1: what has a key is not written while a tombstone of that is kept; or 0
number   max_bytes    look at nothing more after so many bytes of conflicting entries, > 0
number   keep_ms      how long a generation of marks lasts, ms; 0: there are none
number   most_marks   the most marks in one
rows...    entries    of each entry, one after the other:
         id           the task's id
         mode         at | after: the start of `us`
         us           unix time, or microseconds from now, >= 0
         header       the record's header
         body         the record's part from the flags on
         template     the template that `body` shares; empty if it comes with an entry before this one, or the caller
                      believes that it is here
         conflict     the policy if an entry has its id, or waits under its key: reject the new one; keep the existing
                      one; replace it; earliest, latest: the one due then stays; debounce, replace it, and be due at the
                      latest so many ms after the existing one was scheduled. If the entry that has the key has left, or
                      is leaving, keep means that one; with the others but reject the new one goes behind it; if one is
                      there, it means that
         max_wait     these ms, or empty
         run          the delivery whose run goes on, and takes its key along; or empty
         mark         if the entry was a message that a broker delivered: its mark, 16 bytes; or empty
         again        1: it may have been delivered before; or 0: an older mark is of another message
         received     when it was received, us; 0: its task is running, and makes this call now

reply    of id how when message why

Returns  the answer, a text; and, to the first request, rows of those whose REVOKED must be stored: how, c or u, when, us.
         Without `tells`, a message is empty, unless REVOKED must be stored.
         With the verdict `templates` all are refused: send the shared templates along.
         The text has a word for each entry: its due time; or why it was not written: scheduled, the id, or the key, has
         an entry, or its message was allowed to run at another worker since; late, due past `latest`; leased, an entry
         with its id is; again, ask again; taken, its message became an entry before; held, the key is, by an entry that
         has left, or is leaving; dead, the id is a dead letter's; kept and a due time, that existing entry stays. After
         it, each with a colon before it, the ids of the entry that has the key (scheduled, held), was replaced, or stays
         (kept; empty, if the key's entry has left).
Cost     O(log N) an entry; the caller bounds entries and bytes
Keeps    an id has one record and one place, a key has one waiting entry, and one behind it; a repeated operation
         changes nothing
]]
local names = {} -- ids, and the names of keys
for _, entry in ipairs(entries) do
  names[#names + 1] = entry.id
  if ends_in_extras(entry.body, 1 - FLAGS) then
    entry.extras = extras_of_body(entry.body)
    if entry.extras.key then names[#names + 1] = name_of_key(entry.extras.key) end
  end
end

-- Schedule an entry, or refuse it. Return the answer.
local function schedule(step, at, entry)
  local call, id, us = step.call, entry.id, entry.us
  if step.bytes >= max_bytes then return 'again' end
  if entry.mark ~= '' then
    local answer = refused_by_mark(call, entry)
    if answer then return answer end
  end
  local when = due_in_ms(entry.mode == 'after' and call.now_us + us or tonumber(us), call.now_us)
  if when > latest then return 'late' end

  local extras = entry.extras
  local new = {
    id = id, header = entry.header, body = entry.body, when = when, created = step.created,
    extras = extras, key = extras and extras.key or nil, rest = #entries - at,
  }
  local is_there = redis.call('HEXISTS', keys.records, id) == 1
  if not is_there and not new.key then return write_entry(step, new) end
  if unless_left and new.key and how_left(name_of_key(new.key)) then return 'kept:' .. whole(when) .. ':' end
  return contend(step, new, entry, supersede, is_there)
end

return change(request, function(call)
  -- Nothing is rolled back, so any step that can fail comes before the first write, that of `meta`.
  local some = redis.call('EXISTS', keys.claims, keys.errors, keys.outbox) > 0 -- usually there are none of these
  local step = {
    call = call, revokes = revokes, tells = tells or revokes ~= 'none', count = #entries,
    created = string.format('%016.0f', call.now_us), changed = seven_bytes(call.now_us),
    leftovers = some and redis.call('EXISTS', keys.claims, keys.errors) > 0,
    is_owing = some and redis.call('EXISTS', keys.outbox) == 1,
    here = {}, -- name of a template -> true
    brought = {}, -- templates that came along, even with a refused entry
    sharing = {}, -- name of a template -> uses counted in advance
    earliest = math.huge, -- due time of the entries written
    bytes = 0, -- of existing entries that were read
  }

  -- Check that all shared templates are here, whole, or come along.
  local here, brought = step.here, step.brought
  for _, entry in ipairs(entries) do
    local name, template = name_in(entry.body), entry.template
    if name and template ~= '' then brought[name] = template end
    if name and not here[name] then
      here[name] = text_of(name) ~= nil
      if not here[name] and not brought[name] then return nil, 'templates' end
    end
    if is_fenced(call, entry.id) then return nil, 'stale' end
  end

  local told, taken, marks = {}, {}, {}
  for at, entry in ipairs(entries) do
    -- An id that comes twice: refuse the second, whatever happened to the first.
    local word = taken[entry.id] and 'scheduled' or schedule(step, at, entry)
    taken[entry.id] = word ~= 'late'
    told[at] = word
    if entry.mark ~= '' and string.find(word, '^%d') then
      marks[#marks + 1], marks[#marks + 2] = entry.mark, whole(-call.now_us)
    end
  end
  for name, unused in pairs(step.sharing) do
    if unused > 0 then drop_template(name, unused) end
  end
  -- After the entries: if Redis stops the script half-way, no message is forgotten.
  if #marks > 0 then set_marks(call.now, keep_ms, most_marks, marks) end
  if step.earliest < math.huge then wake_for(step.earliest, call.now, call.promise) end
  -- Nothing was written, so nothing is refused for want of memory.
  if not step.seq then allow_when_full(keys.templates) end
  local revoked = {}
  for _, one in pairs(step.owed or {}) do
    for _, word in ipairs(one) do revoked[#revoked + 1] = word end
  end
  -- One text: a client takes longer to read hundreds of replies than a script to write their entries.
  return table.concat(told, ' '), #revoked > 0 and revoked or nil
end, names)
