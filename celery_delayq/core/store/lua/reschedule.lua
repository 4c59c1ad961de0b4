--[[ reschedule: move entries that were not delivered yet to another due time; their ids stay.

change   a call: see prelude/call.lua
text      mode       at | after | by: the start of `us` (by: the current due time); now: at once, ignoring pauses;
                     retry: at once, and only dead letters; back: to where they were before the bulk of this call moved
                     them, if nothing has changed them since; hurry: the same, and now if that time has come since
number    us         unix time, or microseconds, negative allowed with `by`; 0 with the modes behind it
number    latest     greatest due time allowed, unix ms
text      only       earlier | later: no other move; or empty
number    if_due     the due time that it must have, ms; or empty
text      undo       for how many ms a line of each is kept at least, if this is a step of a bulk, and of how many of the
                     latest, a blank between; or empty
text      seen       the last change that the only target must have, 7 bytes; or empty
filter    filter     the selection's filter, or empty: see prelude/targets.lua
number    max_bytes  look at nothing more after so many bytes of records, > 0
text...     targets  1 to 1000 of them: see prelude/entry.lua

Returns  the answer, a text with a word for each target: done | uncertain (done, but an earlier attempt may have
         delivered it) | behind (done, but it waits behind another one; of `now` only); these with d, the due time, and
         x, its expiry, if that does not move |
         overdue (its time before, d, has come since; of `back` only) |
         too_late (past `latest`) | unchanged (`only`, `if_due` or `seen` does not hold, or it is not dead, or was changed
         since the move that takes it back) | in_flight |
         handed_over (or it was released, and soon will be) | not_found | unreadable |
         skipped (the selection no longer includes it) | again (it was not looked at)
Cost     O(log N + size of the record) a target
Keeps    a delivered entry is not brought back; one under a lease stays, and one behind another stays there
]]
return change(request, function(call)
  local looked = look_for(call, targets, filter, max_bytes, {seen ~= '' and seen or nil})
  if not looked then return nil, 'stale' end

  local _, bulk = author_of(request.operation)
  local is_back = mode == 'back' or mode == 'hurry'
  local ms, most = string.match(undo, '^(%d+) (%d+)$')
  local keeps = ms and bulk ~= ''
  local lines, count, has_room = {}, 0, false

  -- Return an entry's new due time; or nil: it stays as it is.
  local function new_due(entry)
    local before, when = due_of(entry.record, entry.header_end), nil
    if if_due and before ~= if_due then return nil end
    if mode == 'retry' and not is_dead(entry.place) then return nil end
    if is_back then
      local was_over
      when, was_over = moved_from(entry, bulk)
      if when and when <= call.now and not was_over then return mode == 'hurry' and call.now or nil, when end
      return when
    elseif mode == 'by' then
      when = math.max(0, before + math.ceil(us / 1000))
    elseif mode == 'now' or mode == 'retry' then
      when = call.now
    else
      when = due_in_ms(mode == 'after' and call.now_us + us or us, call.now_us)
    end
    if (only == 'earlier' and when >= before) or (only == 'later' and when <= before) then return nil end
    return when
  end

  -- Return a record with its new due time, and with the flag to ignore pauses, if so.
  local function moved(entry, text)
    local record = with_due(entry.record, entry.header_end, text, call.now_us)
    if is_released(record, entry.header_end) then return record end
    local before, after = has_flag(record, entry.header_end, RUN_NOW), mode == 'now'
    if before == after then return record end
    local flags = flags_of(record, entry.header_end) + (after and RUN_NOW or -RUN_NOW)
    return with_flags(record, entry.header_end, flags)
  end

  local function judge(entry)
    if not (mode == 'now' or mode == 'retry') and is_released(entry.record, entry.header_end) then
      return 'handed_over'
    end
    local when, over = new_due(entry)
    if not when then return over and 'overdue' .. quoted('d' .. whole(over)) or 'unchanged' end
    if when > latest then return 'too_late' end
    return mode == 'now' and entry.place == keys.behind and 'behind' or done_to(entry), when
  end

  local function note_move(entry, record)
    local extras = extras_of(record, entry.header_end)
    local kind = mode == 'now' and 'n' or mode == 'retry' and 't' or is_back and 'o' or 'm'
    note_event(kind, call.now, told_by(record, entry.header_end, entry.id, extras and extras.key))
  end

  local earliest = math.huge
  local function move(entry, at, when)
    local text = whole(when)
    local index = entry.place == keys.behind and keys.behind or index_of(entry.record)
    local record = moved(entry, text)
    redis.call('HSET', keys.records, entry.id, record)
    -- An entry of `behind` gets its key from the step that frees it, even if the holder's time is over by now.
    if index ~= keys.behind then take_key(record, entry.header_end, entry.id) end
    put_back(index, text, entry.place, entry.member, entry.claim, entry.there)
    if entry.failed then redis.call('HDEL', keys.errors, entry.id) end
    if past.kept then note_move(entry, record) end
    if is_back then
      drop_line(MOVED .. entry.id)
      count_back(bulk)
    end
    -- A dead one would come back alive.
    if has_room and not is_dead(entry.place) then
      lines[#lines + 1], lines[#lines + 2] = MOVED .. entry.id, table.concat({
        whole(call.now_us), bulk, 'moved', whole(due_of(entry.record, entry.header_end)),
        whole(changed_of(record, entry.header_end)),
      }, ' ')
    end
    count = count + 1
    earliest = math.min(earliest, when)
    local expiry = fixed_expiry(entry.record, entry.header_end)
    return quoted('d' .. text) .. named_in(targets[at], entry.id) .. (expiry and quoted('x' .. expiry) or '')
  end

  local function begin()
    has_room = keeps and not is_memory_full()
    allow_when_full(keys.records)
  end

  local answer, why = change_each(call, targets, looked, judge, begin, move)
  if keeps then keep_lines(call, lines, tonumber(ms), tonumber(most), bulk, count) end
  if earliest < math.huge then wake_for(earliest, call.now, call.promise) end
  return answer, why
end)
