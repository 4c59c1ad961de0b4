--[[ rewrite: give waiting entries another message, queue, key or tags, under their ids; release delivers them at once.

change   a call: see prelude/call.lua
flag     releases     1: deliver them now, each with a message that tells a worker when to run it; or 0
filter   filter       the selection's filter, or empty: see prelude/targets.lua
number   max_bytes    look at nothing more after so many bytes of records, > 0
rows...    parts      of each, 1 to 100 of them:
         target       see prelude/entry.lua
         seen         number and last change, 13 bytes, of the record that the caller has read; or empty
         header       the record's header; of one to release with kind and destination unchanged
         body         the record's part from the flags on; the task, and the late policy, unchanged; of one to release whole,
                      with its key and tags unchanged
         template     the template that `body` shares, or empty

Returns  the answer, a text with a word for each: done | uncertain (done, but an earlier attempt may have delivered it
         with its old message) | unchanged (changed since the caller read it; or dead, and to release) | taken, or held:
         another entry, h, waits under the new key; or has left, and holds it, until u | in_flight | handed_over (or it
         was released) | not_found | unreadable | skipped (the selection no longer includes it) | again (it was not
         looked at)
Cost     O(log N + size of the record) each
Keeps    an entry has one place, under its record's number; one under a lease stays. A released one is not due before
         its message has the time until which it waits, and does not wait behind another one
]]
local targets, seen = {}, {}
for at, part in ipairs(parts) do targets[at], seen[at] = part.target, part.seen end
local NONE = {tags = {}}

return change(request, function(call)
  local looked = look_for(call, targets, filter, max_bytes, seen)
  if not looked then return nil, 'stale' end

  local function key_in(body) return (extras_of_body(body) or NONE).key or nil end

  -- The key before, and the new one, if they differ.
  local function keys_of(entry, body)
    local before, key = (extras_of(entry.record, entry.header_end) or NONE).key or nil, key_in(body)
    if key ~= before then return before, key end
  end

  local function judge(entry, at)
    if is_released(entry.record, entry.header_end) then return 'handed_over' end
    local old_key, key = keys_of(entry, parts[at].body)
    -- To release, it must have the key that the caller has read.
    if releases and (entry.place == keys.dead or old_key or key) then return 'unchanged' end
    if key and is_key_fenced(call, name_of_key(key)) then return nil end
    local holder = key and other_holder(key, entry.id)
    if holder then
      local ends = select(2, holder_of(key)) and redis.call('ZSCORE', keys.held, key)
      return (ends and 'held' or 'taken') .. quoted('h' .. holder) .. (ends and quoted('u' .. ends) or '')
    end
    return done_to(entry), parts[at]
  end

  local function rewrite(entry, _, part)
    local id, record, header_end, place, there = entry.id, entry.record, entry.header_end, entry.place, entry.there
    local header, body, template = part.header, part.body, part.template
    -- A released one does not wait for its key.
    if releases and place == keys.behind and key_in(body) then body = without_key(body, 1 - FLAGS) end
    local before, extras = extras_of(record, header_end) or NONE, extras_of_body(body) or NONE

    -- A record that grows past SMALL gets the number next to its own, which no other record has. One that shrinks may
    -- keep its number: at worst its size is checked for nothing.
    local number = number_of(order_of(record, header_end))
    local small = six_bytes(number - number % 2)
    local grows = number % 2 == 0 and #header + #body + 49 > SMALL
    local order = six_bytes(grows and number + 1 or number)
    local member = order .. id

    -- It stays in its place. But with another queue, or after a lease that ran out, it waits again. Behind another one,
    -- only another key changes its place.
    local lapsed, other_kind = place == keys.leased, sub(record, 2, 2) ~= sub(header, 2, 2)
    local other_queue = other_kind or queue_of(record, header_end) ~= part_of(body, 1 - FLAGS, QUEUE, FORM)
    local old_key, key = keys_of(entry, body)
    local is_behind = place == keys.behind
    local moves = releases or lapsed or is_behind and old_key or not is_behind and other_queue and not is_dead(place)
    local changes_kind = moves and other_kind
    local index, score, due = place, entry.score, due_text(record, header_end)
    if releases then
      due = whole(call.now)
    elseif is_behind and moves then
      due = whole(math.max(call.now, tonumber(due)))
    end
    if moves then index, score = index_of(header), whole(tonumber(due)) end
    local where = not moves and there and sub(there, 1, -#member - 1) or '' -- the part before members there

    -- References to the new record come before it, and references to the old one go after it: if Redis stops the script
    -- half-way, there are too many of them, never too few.
    local old, new = template_of(record, header_end), name_in(body)
    if new and new ~= old then
      redis.call('HINCRBY', keys.template_uses, new, 1)
      -- Taken but not used: it shows a recount that a record may have joined this template.
      take_numbers(1, not call.has_numbers)
      call.has_numbers = true
      if not text_of(new) then redis.call('HSET', keys.templates, new, template) end
    end
    -- The scanner of a lease that ran out must not acknowledge the new record, so end its claim before the entry waits.
    if moves and entry.claim then end_claim(id, entry.claim) end
    -- A scanner takes each entry of an index for one of its kind. Those in `refused` come back to the right index.
    if changes_kind then make_untidy() end
    -- One to release comes after its record: due now with its old message, it would run too early.
    local function enter()
      redis.call('ZADD', changes_kind and keys.refused or index, score, where .. member)
    end
    if index and (grows or moves) and not releases then enter() end
    if changes_kind and place ~= keys.refused then redis.call('ZREM', place, there) end
    local tagged = {}
    for _, tag in ipairs(extras.tags) do
      tagged[tag .. '\0' .. member] = true
      redis.call('ZADD', keys.tags, 0, tag .. '\0' .. member)
    end
    if is_behind and not moves and grows and extras.key then
      redis.call('HSET', keys.holders, name_of_key(extras.key), member)
    end
    if key then redis.call('HSET', keys.holders, key, id) end
    local text = record_of(header, order, due,
      created_of(record, header_end), changed_next(record, header_end, call.now_us), body)
    -- The pauses of its old queue excuse it still.
    local from = other_queue and counted_from(new_lanes(call.now_us), record, header_end, true)
    text = from and with_excuse(text, #header, from) or text
    redis.call('HSET', keys.records, id, text)
    if releases then enter() end
    if past.kept and not releases then
      note_event('e', call.now, told_by(text, #header, id, extras.key))
    end
    if lapsed and not old_key then take_key(text, #header, id) end
    if changes_kind then
      redis.call('ZADD', index, score, member)
      redis.call('ZREM', keys.refused, member)
    end
    if moves and place ~= index then redis.call('ZREM', place, there) end
    -- Even if it grew before, in a script that Redis stopped.
    if index and is_large(member) then redis.call('ZREM', index, where .. small .. id) end
    for _, tag in ipairs(before.tags) do
      for _, its in ipairs({entry.member, small .. id}) do
        if not tagged[tag .. '\0' .. its] then redis.call('ZREM', keys.tags, tag .. '\0' .. its) end
      end
    end
    if old_key then
      fence(call, name_of_key(old_key))
      local holder, delivery, behind = holder_of(old_key)
      if behind == entry.member then leave_behind(old_key, behind) end
      if holder == id and not delivery then free_key(old_key, behind) end
    end
    if old and old ~= new then drop_template(old, 1) end
    if moves and entry.failed then redis.call('HDEL', keys.errors, id) end
    if moves then wake_for(tonumber(score), call.now, call.promise) end
  end

  local function begin(goes)
    -- It changes nothing, but a full Redis refuses it, and may do so only before the first write.
    if goes then redis.call('ZADD', keys.due, 'XX', 0, '') else allow_when_full(keys.records) end
  end

  return change_each(call, targets, looked, judge, begin, rewrite)
end)
