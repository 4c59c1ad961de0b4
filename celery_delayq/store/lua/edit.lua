--[[ edit: give an entry that was not delivered yet another message; its id, times, key and tags stay.

change   a call: see prelude/call.lua
text     target       see prelude/entry.lua
text     seen         number and last change, 13 bytes, of the record that the caller has read; or empty
text     destination  the record's header, from its second byte
text     body         the record's part from the flags on; flags, labels and extras unchanged
text     template     the template that `body` shares, or empty

Returns  the answer: done | uncertain | unchanged (it was changed since the caller read it; nothing was written) |
         in_flight | handed_over (or it was released) | not_found | unreadable and why
         uncertain: done, but an earlier attempt may have delivered it with its old message
Cost     O(log N + size of the record)
Keeps    an entry has one place, under its record's number; one under a lease stays
]]
return change(request, function(call)
  -- An overtaken request finds another state than its caller has read, and is refused by that.
  local id, name = meant_by(target)
  local entry, why = entry_of(id, name, call)
  if entry and is_released(entry.record, entry.header_end) then return 'handed_over' end
  if entry and stamp_of(entry.record, entry.header_end) ~= seen then entry, why = nil, 'unchanged' end
  if not entry then
    allow_when_full(keys.records)
    if is_gone(why) then fence(call, name) end
    return why
  end
  local record, header_end = entry.record, entry.header_end

  -- A record that grows past SMALL gets the number next to its own, which no other record has. One that shrinks may keep
  -- its number: at worst its size is checked for nothing.
  local number = number_of(order_of(record, header_end))
  local small = six_bytes(number - number % 2)
  local grows = number % 2 == 0 and #destination + #body + 50 > SMALL
  local order = six_bytes(grows and number + 1 or number)
  local member = order .. id
  local extras = is_large(member) and extras_of(record, header_end)
  local its_tags = extras and extras.tags or {}

  -- It stays in its place. But a lease that ran out ends, and the entry waits again.
  local lapsed = entry.place == keys.leased
  local place = lapsed and index_of(record) or entry.place
  local score = lapsed and whole(due_of(record, header_end)) or entry.score
  local where = entry.there and sub(entry.there, 1, -#member - 1) -- the part before members there

  -- The first write is one that a full Redis refuses. References to the new record come before it, and references to the
  -- old one go after it: if Redis stops the script half-way, there are too many of them, never too few.
  local old, new = template_of(record, header_end), name_in(body)
  if new and new ~= old then
    redis.call('HINCRBY', keys.template_uses, new, 1)
    -- Taken but not used: it shows a recount that a record may have joined this template.
    take_numbers(1, not call.has_numbers)
    if not text_of(new) then redis.call('HSET', keys.templates, new, template) end
  end
  -- The scanner of a lease that ran out must not acknowledge the new record, so end its claim before the entry waits.
  if lapsed then end_claim(id, entry.claim) end
  if place and (grows or lapsed) then redis.call('ZADD', place, score, where .. member) end
  for _, tag in ipairs(its_tags) do redis.call('ZADD', keys.tags, 0, tag .. '\0' .. member) end
  redis.call('HSET', keys.records, id, record_of(destination, order, due_text(record, header_end),
    created_of(record, header_end), changed_next(record, header_end, call.now_us), body))
  if lapsed then take_key(record, header_end, id) end
  if lapsed then redis.call('ZREM', keys.leased, entry.there) end
  -- Even if it grew before, in a script that Redis stopped.
  if place and is_large(member) then redis.call('ZREM', place, where .. small .. id) end
  for _, tag in ipairs(its_tags) do redis.call('ZREM', keys.tags, tag .. '\0' .. small .. id) end
  if old and old ~= new then drop_template(old, 1) end
  if lapsed then wake_for(tonumber(score), call.now, call.promise) end
  return entry.claim and entry.claim.uncertain and 'uncertain' or 'done'
end)
