--[[ schedule: store entries until they are due; each is scheduled or refused by itself.

change   a call: see prelude/call.lua
number   latest       greatest due time allowed, unix ms
flag     supersede    1: the caller is this very task, running: an entry that may have been delivered gives way
number   owes         store REVOKED: 0, for none; 1, for replaced entries; 2, also for a new one that gives way to an
                      existing one, as its id was given out
number   max_bytes    look at nothing more after so many bytes of conflicting entries, > 0
text     deliveries   empty; or, if the entries were messages that a broker delivered: how many ms a generation of
                      marks lasts, the most marks in one, a blank after both, and of each entry its mark, 16 bytes;
                      1, if it may have been delivered before, or 0: an older mark is of another message; and when it
                      was received (us, 7 bytes), or 0: its task is running, and makes this call now
rows...    entries    of each entry, one after the other:
         id           the task's id
         mode         at | after: the start of `us`
         us           unix time, or microseconds from now, >= 0
         destination  the record's header, from its second byte
         body         the record's part from the flags on
         template     the template that `body` shares; empty if it comes with an entry before this one, or the caller
                      believes that it is here
         conflict     the policy if an entry has its id, or waits under its key: empty, refuse the new one; keep the
                      existing one; replace it; earliest, latest: the one due then stays; debounce, replace it, and
                      be due at the latest so many ms (after a blank, if any) after the existing one was scheduled.
                      If the entry that has the key has left, or is leaving, keep means that one; with the others but
                      the empty one the new one goes behind it; if one is there, it means that

reply    of id how when message why

Returns  the answer, a text; and, to the first request, rows of those whose REVOKED must be stored: how, c or u, when, us.
         With the verdict `templates` all are refused: send the shared templates along.
         The text has a word for each entry: its due time; or why it was not written: -1, the id is already scheduled,
         or its message was allowed to run at another worker since; -2, due past `latest`; -3, an entry with its id is
         leased; -4, ask again; -5, its message became an entry before; -6, the key is held by an entry that has left,
         or is leaving; -7, the id is a dead letter's; k and a due time, that existing entry stays. After it, each with
         a colon before it, the ids of the entry that has the key (-1, -6), was replaced, or stays (k).
Cost     O(log N) an entry; the caller bounds entries and bytes
Keeps    an id has one record and one place, a key has one waiting entry, and one behind it; a repeated operation
         changes nothing
]]
local keep_ms, most_marks, messages = string.match(deliveries, '^(%d+) (%d+) (.*)$')
local CONFLICT, LATE, AGAIN, TAKEN, HOLDS, DEAD = '-1', '-2', '-4', '-5', '-6', '-7'

local names = {} -- ids, and the names of keys
for _, entry in ipairs(entries) do
  local extras = extras_of_body(entry.body)
  names[#names + 1] = entry.id
  if extras and extras.key then names[#names + 1] = name_of_key(extras.key) end
end
return change(request, function(call)
  -- Nothing is rolled back, so any step that can fail comes before the first write, that of `meta`.
  local some = redis.call('EXISTS', keys.claims, keys.errors, keys.outbox) > 0 -- usually there are none of these
  local leftovers = some and redis.call('EXISTS', keys.claims, keys.errors) > 0
  local is_owing = some and redis.call('EXISTS', keys.outbox) == 1

  -- Check that all shared templates are here, whole, or come along.
  local here = {} -- name of a template -> true
  local brought = {} -- templates that came along, even with a refused entry
  for _, entry in ipairs(entries) do
    local name, template = name_in(entry.body), entry.template
    if name and template ~= '' then brought[name] = template end
    if name and not here[name] then
      here[name] = text_of(name) ~= nil
      if not here[name] and not brought[name] then return nil, 'templates' end
    end
    if is_fenced(call, entry.id) then return nil, 'stale' end
  end

  local now = call.now
  local created_now, changed_now = string.format('%016.0f', call.now_us), seven_bytes(call.now_us)
  local step = {
    call = call, created = created_now, owes = owes,
    here = here, brought = brought, leftovers = leftovers,
    bytes = 0, owed = {}, asked = {}, cache = {},
  }
  local sharing = {} -- name of a template -> uses counted in advance
  local earliest = math.huge -- due time of the entries written
  local seq -- last insertion number used
  local marks = {} -- of messages that became entries

  -- Count a use of a template before it is made; the first time, count all that may follow. If Redis stops the script
  -- half-way, the count must not be too low.
  local function count_use(name, most)
    if not sharing[name] then
      redis.call('HINCRBY', keys.template_uses, name, most)
      sharing[name] = most
    end
    sharing[name] = sharing[name] - 1
  end

  local function next_order(size)
    if not seq then
      seq = take_numbers(#entries, not call.has_numbers) - #entries
    end
    seq = seq + 1
    return six_bytes(seq * 2 + (size > SMALL and 1 or 0))
  end

  -- Return the mark of an entry's message, and why the message may not become an entry, if so.
  local function delivered(at)
    if not messages then return nil end
    local first = (at - 1) * 24 + 1
    local mark, again = sub(messages, first, first + 15), sub(messages, first + 16, first + 16) == '1'
    local received = number_in(messages, first + 17, first + 23)
    local us = marked(mark)
    if us and us < 0 and -us >= (again and 0 or received) then return mark, TAKEN end
    -- It runs elsewhere. A worker that died before that does not repeat its request; a worker that runs it does.
    if us and us > (received > 0 and received or call.issued) then return mark, received > 0 and CONFLICT or AGAIN end
    return mark
  end

  local function schedule(at, entry)
    local id, us, destination, body, conflict = entry.id, entry.us, entry.destination, entry.body, entry.conflict
    if step.bytes >= max_bytes then return AGAIN end
    local mark, refused_as = delivered(at)
    if refused_as then return refused_as end
    local when = due_in_ms(entry.mode == 'after' and call.now_us + us or tonumber(us), call.now_us)
    if when > latest then return LATE end

    local extras = extras_of_body(body)
    local key = extras and extras.key
    -- A run that goes on takes its key along, or goes on without it if that was lost: to another task, or to another
    -- delivery of its own id, as its second copy has ended and was followed by that.
    local goes_on = key and string.find(extras.hold or '', ' ', 1, true)
    local before = goes_on and other_holder(key, id)
    if before and (before ~= id or select(2, holder_of(key)) ~= sub(extras.hold, goes_on + 1)) then
      body = without_key(body, 1 - FLAGS)
      extras, key = extras_of_body(body), nil
    end
    local new = {id = id, key = key, destination = destination, body = body}
    local own = redis.call('HEXISTS', keys.records, id) == 1 and present(step, id)
    local superseded = own and supersede and may_be_delivered(own)
    if own and not superseded and (conflict == '' or not own.header_end) then
      return own.state == 'dead' and DEAD or CONFLICT
    end
    if own and own.header_end then
      local its = extras_of(own.record, own.header_end)
      own.hold = its and its.key == key and its.hold
      own.runs = superseded and not goes_on and own.state ~= 'dead'
    end
    local named, second = nil, nil
    if key and not goes_on then named, second = named_by(step, key, id, own and own.runs and own) end
    local waits = named and named.state == 'waiting' and named.place ~= keys.leased
    local holder = named and (named.busy or waits) and named or nil
    if holder and holder.member == second then second = nil end -- it came forward, in a script that Redis stopped
    local is_behind = holder and (holder.busy or second) and conflict ~= '' and conflict ~= 'keep'
    -- Another copy of the running task has freed the key.
    if own and own.hold and not is_behind then own.runs = false end
    second = second and behind_another(step, second, id)
    if is_behind or not holder then holder = second end
    if holder and conflict == '' then return (holder.busy and HOLDS or CONFLICT) .. quoted(holder.id) end
    if own and not superseded and is_newer(step, own) then return AGAIN end
    if key and is_late_under(step, key, named, second) then return AGAIN end

    local ways, answer, created = {holder}, nil, created_now
    if own and not superseded then ways[#ways + 1] = own end
    if #ways > 0 then
      answer, when, created = resolve(step, ways, not superseded and own, new, when, conflict)
      if answer then return answer end
    end

    -- The first write is one that a full Redis refuses. After one that frees memory it would let all others pass.
    local order = next_order(#destination + #body + 50)
    local name = name_in(body)
    if name then
      count_use(name, #entries + 1 - at)
      if not here[name] then
        redis.call('HSET', keys.templates, name, brought[name])
        here[name] = true
      end
    end

    local index, text = sub(destination, 1, 1) == 'L' and keys.due or keys.relay, whole(when)
    if is_behind then
      make_untidy()
      index, body = keys.behind, body_behind(body)
    end
    local changed = own and changed_next(own.record, own.header_end, call.now_us) or changed_now
    -- The place comes before its record, so that no record lacks one.
    redis.call('ZADD', index, text, order .. id)
    if extras then index_extras({key = not is_behind and extras.key, tags = extras.tags}, id, order .. id) end
    -- A queue may have a copy of the earlier entry. If that is the running task, it is the caller itself.
    if own then own.lasts = not superseded and own.claim and own.claim.uncertain end
    -- The scanner of the earlier entry's lease must not acknowledge this one.
    if own and (own.lasts or own.place == keys.leased) then
      own.claim.refusals = 0
      end_claim(id, own.claim)
    end
    redis.call('HSET', keys.records, id, record_of(destination, order, text, created, changed, body))
    -- Not before: it takes the name of the one that was behind.
    if is_behind then stand_behind(key, order .. id) end
    if leftovers then
      if not (own and own.lasts) then redis.call('HDEL', keys.claims, id) end
      redis.call('HDEL', keys.errors, id)
      redis.call('ZREM', keys.dead, RECORDLESS .. id)
    end
    -- It is no longer revoked, not even by an entry of this very call.
    if is_owing or step.owed[id] then
      step.owed[id] = nil
      redis.call('HDEL', keys.outbox_messages, id)
      redis.call('ZREM', keys.outbox, id)
    end
    if own then displace(step, own, new) end
    if holder then displace(step, holder, new) end
    if past.kept then past.note('s', now, past.told_of(padded(text) .. labels_in(body), id, key)) end
    earliest = math.min(earliest, is_behind and tonumber(redis.call('ZSCORE', keys.held, key)) or when)
    if mark then marks[#marks + 1], marks[#marks + 2] = mark, whole(-call.now_us) end
    return text .. (holder and quoted(holder.id) or '')
  end

  local told, taken = {}, {}
  for at, entry in ipairs(entries) do
    local id = entry.id
    -- An id that comes twice: refuse the second, whatever happened to the first.
    local one = taken[id] and CONFLICT or schedule(at, entry)
    taken[id] = one ~= LATE
    told[#told + 1] = one
  end
  for name, unused in pairs(sharing) do
    if unused > 0 then drop_template(name, unused) end
  end
  -- After the entries: if Redis stops the script half-way, no message is forgotten.
  if #marks > 0 then set_marks(now, tonumber(keep_ms), tonumber(most_marks), marks) end
  if earliest < math.huge then wake_for(earliest, now, call.promise) end
  -- Nothing was written, so nothing is refused for want of memory.
  if not seq then allow_when_full(keys.templates) end
  local revoked = {}
  for _, one in pairs(step.owed) do
    for _, word in ipairs(one) do revoked[#revoked + 1] = word end
  end
  -- One text: a client takes longer to read hundreds of replies than a script to write their entries.
  return table.concat(told, ' '), #revoked > 0 and revoked or nil
end, names)
