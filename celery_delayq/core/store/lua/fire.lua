--[[ fire: write the next runs of a rule, as entries, and its last slot.

change   a call: see prelude/call.lua
text     called    the rule
number   revision  that its slots were computed for
number   look      when to look at it next, ms; or a claim, as its next run cannot be made by this process
text     trouble   why its next run cannot be made; empty: it could be, or is written
rows...  runs      of each run, one after the other, in the order of their slots; none: only `look` changes, and the trouble,
                   which counts if as many attempts failed in a row as there are live scanners
         slot         ms
         id           the task's id; empty: the slot is left out
         due          its due time, ms
         header       the record's header; of a slot that is left out, why
         body         the record's part from the flags on
         template     the template that `body` shares; empty if it comes with a run before this one

Returns  the answer, a text with a word for each run: done; past, its slot was written before; taken, it is there, or was
         delivered; held, its key is; omitted, it is left out or skipped; or one word, changed: the rule has another
         revision, or a flag, and nothing was written
Cost     O(log N) a run; the caller bounds runs and bytes
Keeps    each slot becomes one entry at most, even if two processes compute it, or one does so late
]]
return change(request, function(call)
  local rule, back, words = rule_of(called), begin_return(call), {}
  if not rule or rule.revision ~= revision or string.find(rule.flags, '[pcr]') then
    allow_when_full(keys.rules)
    return 'changed'
  end
  for _, run in ipairs(runs) do
    run.created, run.place, run.ms, run.claim, run.error, run.named = '', 'waiting', 0, '', '', '1'
    if run.id ~= '' and is_return_stale(back, run) then return nil, 'stale' end
  end
  for at, run in ipairs(runs) do
    local slot, word = tonumber(run.slot), 'past'
    if slot > rule.last then
      -- The rule may be from a dump of before its run was delivered.
      local is_omitted = run.id == '' or skips_slot(rule, slot)
      word = is_omitted and 'omitted' or was_handed_over(run.id) and 'taken' or string.match(bring_back(back, run), '^%l+')
      if word == 'loaded' then
        word = 'done'
        local extras = past.kept and extras_of_body(run.body)
        if past.kept then
          note_event('s', call.now, told_of(padded(run.due) .. labels_in(run.body), run.id, extras and extras.key))
        end
      end
      -- It may be free by then: it is looked at again, until its time has come.
      if word == 'held' and tonumber(run.due) > call.now then
        words[at] = word
        break
      end
      if word == 'held' or run.id == '' then
        rule.omitted = whole(slot) .. ' ' .. (run.id == '' and run.header or word)
      end
      rule.last = slot
      flag_rule(rule, 'n', false)
    end
    words[at] = word
  end
  if rule.skipped then set_skips(rule, skips_of(rule), call.now - offset_of(rule)) end
  redis.call('ZADD', keys.rules_next, string.format('%.3f', look), called)
  local is_failed = trouble ~= '' and #runs == 0
  rule.failed = is_failed and (rule.failed or 0) + 1 or nil
  keep_rule(called, rule)
  if trouble ~= '' then
    -- A process with other code may make it.
    if not is_failed or rule.failed >= redis.call('ZCOUNT', keys.scanners, whole(call.now), '+inf') then
      redis.call('HSET', keys.rules_trouble, called, whole(call.now) .. ' ' .. trouble)
    end
  else
    redis.call('HDEL', keys.rules_trouble, called)
  end
  if back.earliest < math.huge then wake_for(back.earliest, call.now, call.promise) end
  return table.concat(words, ' ')
end)
