--[[ release: deliver waiting entries now, each with a message that tells a worker when to run it.

change   a call: see prelude/call.lua
filter   filter     the selection's filter, or empty: see prelude/targets.lua
number   max_bytes  look at nothing more after so many bytes of records, > 0
rows...    parts    of each, 1 to 100 of them:
         target     see prelude/entry.lua
         seen       number and last change of the record that the caller has read, 13 bytes
         header     the new record's header, with kind and destination unchanged
         body       its part from the flags on, whole, with its key and tags unchanged

Returns  the answer, a text with a word for each: done | uncertain (done, but an earlier attempt may have delivered it
         with its old message) | unchanged (changed since the caller read it, or dead) | in_flight | handed_over |
         not_found | unreadable, and why | skipped (the selection no longer includes it) | again (it was not looked at)
Cost     O(log N + size of the record) each
Keeps    an entry is not due before its message has the time until which it waits. One behind another goes, too
]]
local targets, seen = {}, {}
for at, part in ipairs(parts) do targets[at], seen[at] = part.target, part.seen end

return change(request, function(call)
  local looked, now = look_for(call, targets, filter, max_bytes, seen), call.now
  if not looked then return nil, 'stale' end

  -- Return the outcome for a target, in a word.
  local function outcome_of(one, body)
    local entry = one.entry
    if not entry then
      if one.member and is_gone(one.answer) then return SKIPPED end
      local why = string.match(one.answer, '^unreadable (.*)$')
      return why and 'unreadable' .. quoted(why) or one.answer
    end
    if entry.place == keys.dead then return 'unchanged' end
    local before, after = extras_of(entry.record, entry.header_end), extras_of_body(body)
    -- It lost its key since the caller read it.
    if (before and before.key or nil) ~= (after and after.key or nil) then return 'unchanged' end
    return entry.claim and entry.claim.uncertain and 'uncertain' or 'done'
  end

  -- Release an entry. The record comes first: an entry due now with its old message would run too early; one with the
  -- new message but its old due time is only late.
  local function release(entry, header, body)
    local record, header_end, id, place, there = entry.record, entry.header_end, entry.id, entry.place, entry.there
    local number = number_of(order_of(record, header_end))
    local grows = number % 2 == 0 and #header + #body + 49 > SMALL
    local order = six_bytes(grows and number + 1 or number)
    local extras, behind = grows and extras_of(record, header_end), place == keys.behind and extras_of(record, header_end)
    local member, index = order .. id, index_of(record)
    local name, its_tags = template_of(record, header_end), extras and extras.tags or {}

    local changed = changed_next(record, header_end, call.now_us)
    local released = record_of(header, order, whole(now), created_of(record, header_end), changed, body)
    -- It does not wait for its key.
    if behind and behind.key then released = without_key(released, #header) end
    redis.call('HSET', keys.records, id, released)
    for _, tag in ipairs(its_tags) do redis.call('ZADD', keys.tags, 0, tag .. '\0' .. member) end
    if place == keys.leased then take_key(released, #header, id) end
    put_back(index, whole(now), place, entry.member, entry.claim, there)
    if behind and behind.key then leave_behind(behind.key, entry.member) end
    if grows then
      redis.call('ZADD', index, whole(now), member)
      redis.call('ZREM', index, entry.member)
    end
    for _, tag in ipairs(its_tags) do redis.call('ZREM', keys.tags, tag .. '\0' .. entry.member) end
    if name then drop_template(name, 1) end
    if entry.failed then redis.call('HDEL', keys.errors, id) end
  end

  -- Nothing is rolled back, so keys that may be refused come before the first write. So does this command, which changes
  -- nothing: an entry with its new message has to go now.
  redis.call('ZADD', keys.due, 'XX', 0, '')
  local words, goes = {}, false
  for at, one in ipairs(looked) do
    words[at] = outcome_of(one, parts[at].body)
    if words[at] == 'done' or words[at] == 'uncertain' then
      release(one.entry, parts[at].header, parts[at].body)
      goes = true
    end
  end
  if goes then wake_for(now, now, call.promise) end
  return table.concat(words, ' ')
end)
