--[[ edit: give an entry that has not left another message; its id, times, key and tags stay.

change   a call: see prelude/call.lua
text     target       who is meant: see prelude/entry.lua
text     seen         of the record that the caller has read: number and last change, 13 bytes; or empty
text     destination  the record's header, from its second byte
text     body         the record's part from the flags on; flags, labels and extras as they were
text     template     the template that `body` shares, or empty

Returns  the answer: done | uncertain | unchanged (it was changed since the caller read it; nothing was written) |
         in_flight | handed_over (or it was released) | not_found | unreadable and why
         uncertain: done, but an earlier attempt may have delivered it as it was
Cost     O(log N + size of the record)
Keeps    an entry has one place, under the number that its record has; one under a lease stays
]]
return change(request, function(call)
  -- A request that something newer has overtaken finds another state than its caller has seen.
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

  -- What has grown past SMALL gets the number next to its own, which nobody else has. What has shrunk may keep
  -- its: that a record may be large costs a look at its size.
  local number = number_of(order_of(record, header_end))
  local small = six_bytes(number - number % 2)
  local grows = number % 2 == 0 and #destination + #body + 50 > SMALL
  local order = six_bytes(grows and number + 1 or number)
  local member = order .. id
  local extras = is_large(member) and extras_of(record, header_end)
  local its_tags = extras and extras.tags or {}

  -- It stays in its place; but a lease that ran out ends, and it waits again.
  local lapsed = entry.place == keys.leased
  local place = lapsed and index_of(record) or entry.place
  local score = lapsed and whole(due_of(record, header_end)) or entry.score
  local where = entry.there and sub(entry.there, 1, -#member - 1) -- what stands before members there

  -- The first write is one that a full Redis refuses. Each that leads to the new record comes before it, and
  -- what led to the old one goes after it: what Redis stops half-way leaves too much, and not too little.
  local old, new = template_of(record, header_end), name_in(body)
  if new and new ~= old then
    redis.call('HINCRBY', keys.template_uses, new, 1)
    -- Taken and not used: whoever counts the records of a template sees by it that one may have joined them.
    take_numbers(1, not call.has_numbers)
    if not text_of(new) then redis.call('HSET', keys.templates, new, template) end
  end
  -- Whoever holds the lease that ran out must not acknowledge what is new; and it is known of it before it waits.
  if lapsed then end_claim(id, entry.claim) end
  if place and (grows or lapsed) then redis.call('ZADD', place, score, where .. member) end
  for _, tag in ipairs(its_tags) do redis.call('ZADD', keys.tags, 0, tag .. '\0' .. member) end
  redis.call('HSET', keys.records, id, record_of(destination, order, due_text(record, header_end),
    created_of(record, header_end), changed_next(record, header_end, call.now_us), body))
  if lapsed then take_key(record, header_end, id) end
  if lapsed then redis.call('ZREM', keys.leased, entry.there) end
  -- Also where it grew before, in a script that Redis stopped.
  if place and is_large(member) then redis.call('ZREM', place, where .. small .. id) end
  for _, tag in ipairs(its_tags) do redis.call('ZREM', keys.tags, tag .. '\0' .. small .. id) end
  if old and old ~= new then drop_template(old, 1) end
  if lapsed then wake_for(tonumber(score), call.now, call.promise) end
  return entry.claim and entry.claim.uncertain and 'uncertain' or 'done'
end)
