--[[ cancel: remove entries that were not delivered yet.

change   a call: see prelude/call.lua
text     mode       cancel; or remove: only dead letters, readable or not. And if an undo is to bring them back, after a
                    blank each: for how many ms a line of each is kept at least, and of how many of the latest
text     revoker    who stores REVOKED: none; caller, or else a scanner; scanner
flag     tells      1: return the messages; or 0
text     seen       the last change that the only target must have, 7 bytes; or empty
filter   filter     the selection's filter, or empty: see prelude/targets.lua
number   max_bytes  look at nothing more after so many bytes of records, > 0
text...    targets  1 to 1000 of them: see prelude/entry.lua

reply    of place when message

Returns  the answer, a text; and rows for the caller: the place of the target, from 1, when it was cancelled, us, and its
         message. The text has a word for each target: done | uncertain (removed, but an earlier attempt may have
         delivered it) | in_flight | handed_over | not_found | unchanged (not dead, or not as seen) | unreadable |
         skipped (the selection no longer includes it) | again (it was not looked at)
Cost     O(log N) a target
Keeps    an entry under a lease stays: its scanner may be publishing it right now
]]
local what, ms, most = string.match(mode, '^(%l+) (%d+) (%d+)$')
what = what or mode
local bulk = '-'
if ms then bulk = string.match(request.operation, '%z(%Z+)$', 13) or bulk end

-- The rows of an answer that is repeated, as far as REVOKED is still owed.
local function told_again(answer)
  local told, at = {}, 0
  if not tells then return told end
  for word in string.gmatch(answer, '%S+') do
    at = at + 1
    local how, id = string.match(word, '^(%l+):?i?(.*)$')
    if how == 'done' or how == 'uncertain' then
      id = id == '' and meant_by(targets[at]) or string.gsub(id, '%%(%x%x)', function(two)
        return string.char(tonumber(two, 16))
      end)
      local when, message = parse_owed(redis.call('HGET', keys.outbox_messages, id))
      if when then told[#told + 1], told[#told + 2], told[#told + 3] = at, when, message end
    end
  end
  return told
end

return change(request, function(call)
  local looked = look_for(call, targets, filter, max_bytes, {seen ~= '' and seen or nil})
  if not looked then return nil, 'stale' end

  local words, told, owed, fenced, lines = {}, {}, {}, call.fenced, {}
  local recordless = {} -- members of dead entries without a record
  local groups, by_name, count = {}, {}, 0 -- leaving entries, by place and by how: c or u, see tombstones
  local cache, templates = {}, {}
  local has_room = ms and not is_memory_full() -- asked before the first write

  -- Group entries that leave from the same place in the same way.
  local function join_group(place, is_uncertain, id, member)
    local how = is_uncertain and 'u' or 'c'
    local name = how .. (place or '')
    local kind = what == 'remove' and 'x' or nil
    local leaving = by_name[name] or {how = how, kind = kind, place = place, ids = {}, members = {}, shared = {}}
    if not by_name[name] then
      by_name[name] = leaving
      groups[#groups + 1] = leaving
    end
    leaving.ids[#leaving.ids + 1], leaving.members[#leaving.members + 1] = id, member
    count = count + 1
    return leaving
  end

  local function note_fence(name)
    fenced[#fenced + 1], fenced[#fenced + 2] = name, seven_bytes(call.now_us)
  end

  -- Remove an entry.
  local function take(at, entry)
    local id, record, header_end = entry.id, entry.record, entry.header_end
    local is_uncertain = entry.claim and entry.claim.uncertain
    local leaving = join_group(entry.place, is_uncertain, id, entry.there)
    leaving.claimed, leaving.failed = leaving.claimed or entry.claim, leaving.failed or entry.failed
    local name = template_of(record, header_end)
    if name then leaving.shared[name] = (leaving.shared[name] or 0) + 1 end
    if past.kept or ends_in_extras(record, header_end) then
      note_extras(leaving, id, entry.member, record, header_end)
    end
    note_fence(id)
    local line = has_room and line_of(call, entry, bulk, templates)
    if line then lines[#lines + 1], lines[#lines + 2] = id, line end
    words[at] = (is_uncertain and 'uncertain' or 'done') .. named_in(targets[at], id)
    if revoker == 'none' and not tells then return end
    local message = whole_message(record, header_end, id, cache)
    if not message then return end
    if revoker ~= 'none' then owed[#owed + 1] = {id = id, how = leaving.how, message = message} end
    if tells then told[#told + 1], told[#told + 2], told[#told + 3] = at, whole(call.now_us), message end
  end

  -- Answer for a target with no entry that can be changed.
  local function pass(at, one)
    words[at] = one.answer
    if is_gone(one.answer) then
      local member = one.member or one.id and RECORDLESS .. one.id
      if member and seen == '' and redis.call('ZSCORE', keys.dead, member) then
        recordless[#recordless + 1] = member
        if past.kept then note_event(what == 'remove' and 'x' or 'c', call.now, told_of(nil, one.id or id_of(member))) end
        words[at] = 'done' .. named_in(targets[at], one.id)
      elseif one.member then
        words[at] = SKIPPED
        return
      elseif what == 'remove' and one.id and redis.call('HEXISTS', keys.errors, one.id) == 1 then
        -- It may be dead under a number that was lost with its record.
        words[at] = 'unreadable' .. quoted('w' .. NO_RECORD) .. named_in(targets[at], one.id)
        return
      end
      note_fence(one.name)
    elseif string.find(one.answer, '^unreadable ') then
      if what == 'remove' and one.member and redis.call('ZSCORE', keys.dead, one.member) then
        local claim = parse_claim(redis.call('HGET', keys.claims, one.id))
        local leaving = join_group(keys.dead, claim.uncertain, one.id, one.member)
        leaving.claimed, leaving.failed = true, true
        if past.kept then note_leaving(leaving, told_of(nil, one.id)) end
        note_fence(one.id)
        words[at] = claim.uncertain and 'uncertain' or 'done'
      else
        words[at] = 'unreadable' .. quoted('w' .. sub(one.answer, 12)) .. named_in(targets[at], one.id)
      end
    end
  end

  for at, one in ipairs(looked) do
    if not one.entry then
      pass(at, one)
    elseif what == 'remove' and not is_dead(one.entry.place) then
      words[at] = 'unchanged'
    else
      take(at, one.entry)
    end
  end

  -- Nothing is rolled back, so commands that may be refused come before the first record goes.
  allow_when_full(keys.tombstones)
  redis.call('ZREM', keys.due, '')
  for _, leaving in ipairs(groups) do
    for _, one in ipairs(leaving.keyed or {}) do note_fence(name_of_key(one.key)) end
  end
  return table.concat(words, ' '), told, function()
    for _, member in ipairs(recordless) do
      redis.call('ZREM', keys.dead, member)
      redis.call('HDEL', keys.errors, id_of(member))
    end
    if ms then keep_lines(call, lines, tonumber(ms), tonumber(most), bulk, count + #recordless) end
    for _, one in ipairs(owed) do
      owe(call, one.id, one.how, one.message, 'cancelled', revoker == 'scanner')
    end
    for _, leaving in ipairs(groups) do depart(leaving, leaving.how, call.now) end
    -- Not with each call for one entry: such calls are many. The call is done, and its caller gets the answer, even if
    -- it may not begin another generation; the next delivery will.
    if count > 1 or count == 1 and turns(call) then pcall(turn_tombstones, call.now) end
  end
end, {}, told_again)
