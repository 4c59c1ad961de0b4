--[[ The targets of a call about many, and the filter of a selection.

filter  empty, if there is no selection; or, with blanks between: due at this time or later, ms; due before this, ms;
        states, with commas between; tasks and queues, as 12 hex digits each; each of the five '-' if it does not
        matter; and, to the end, tags, with NUL between, if any are wanted. One of several values is enough
answer  a word for each target, with blanks between: the outcome, then its parts, each after a colon and a letter that
        names it: i the id, if a key was given; w why it cannot be read; others as a script says
facts   what readers are told of an entry beside its record: parts of the word that says its state, each left out if
        there is nothing to tell. h where the record's header ends; a attempts made, r how many of these were refused,
        m: it may have been delivered; n the next try, if it was refused, s since when it is dead, ms; p the pauses that
        apply, due or not: * (everything), q (its queue), t (its task); b the id of the entry that it is behind, and u
        until when that one holds the key at the latest, ms, if it has left; e its last error
]]
local SKIPPED = 'skipped' -- a selection met the entry, but no longer includes it

-- Whether an entry is dead, by its place: one without a place has lost it.
local function is_dead(place)
  return place == keys.dead or not place
end

-- Read a call's targets, in order: {entry, answer, id, name, member}, with an entry that can be changed, or the answer
-- that says why not, see entry_of. Or nil, if a newer change has overtaken the call. Targets after `max_bytes` of
-- records and repeated ones are not looked at: their answer is to ask again. `seen`: the ends of the stamps that they
-- must have, if any; an entry with another one was changed since its caller read it.
local function look_for(call, targets, filter, max_bytes, seen)
  local looked, bytes, taken = {}, 0, {}
  local lanes = filter and filter.state and new_lanes(call.now_us)
  for at, target in ipairs(targets) do
    local one = {answer = 'again'}
    looked[at] = one
    if bytes < max_bytes then
      one.id, one.name, one.member = meant_by(target)
      if not taken[one.id or target] then
        taken[one.id or target] = true
        local entry, answer, in_flight = entry_of(one.id, one.name, call)
        local there = entry or in_flight
        one.entry, one.answer = entry, answer
        if there then
          bytes = bytes + #there.record
          if is_late_for(call, there, one.name) then return nil end
          if filter and not is_meant(there, one.member, filter, lanes) then
            one.entry, one.answer = nil, SKIPPED
          elseif entry and seen[at] and sub(stamp_of(entry.record, entry.header_end), -#seen[at]) ~= seen[at] then
            one.entry, one.answer = nil, 'unchanged'
          end
        end
      end
    end
  end
  return looked
end

-- The id of a target, as part of a word, if the caller gave a key.
local function named_in(target, id)
  return sub(target, 1, 1) == 'k' and quoted('i' .. id) or ''
end

-- The answer for a target with no entry that can be changed, in a word.
local function word_of_none(one, target)
  if one.member and is_gone(one.answer) then return SKIPPED end
  local why = string.match(one.answer, '^unreadable (.*)$')
  return why and 'unreadable' .. quoted('w' .. why) .. named_in(target, one.id) or one.answer
end

-- Change targets that look_for has read, and return the answer. All is decided before the first write: nothing is rolled
-- back. judge(entry, place in targets) returns a word and details, or nil, if a newer change has overtaken the call; with
-- details, apply(entry, place in targets, details) changes the entry, and may add to the word. begin(whether any changes)
-- comes before the first write.
local function change_each(call, targets, looked, judge, begin, apply)
  local words, details, goes = {}, {}, false
  for at, one in ipairs(looked) do
    if one.entry then words[at], details[at] = judge(one.entry, at) else words[at] = word_of_none(one, targets[at]) end
    if not words[at] then return nil, 'stale' end
    goes = goes or details[at]
  end
  begin(goes)
  for at, one in ipairs(looked) do
    if details[at] then
      words[at] = words[at] .. (apply(one.entry, at, details[at]) or '')
    elseif not one.entry and is_gone(words[at]) then
      fence(call, one.name)
    end
  end
  return table.concat(words, ' ')
end

-- Whether it was changed, as a word: an earlier attempt may have delivered it as it was.
local function done_to(entry)
  return entry.claim and entry.claim.uncertain and 'uncertain' or 'done'
end

-- The state of an entry, as users see it: a due one that is held back is paused, wherever it waits.
local function state_of(entry, lanes)
  if is_dead(entry.place) then return 'DEAD' end
  if entry.place == keys.leased then return 'IN_FLIGHT' end
  local record, header_end, there = entry.record, entry.header_end, entry.place == keys.parked and entry.there or nil
  local is_due = there or lanes.any and entry.place ~= keys.behind and due_of(record, header_end) <= lanes.now
  return is_due and is_held(lanes, record, header_end, there) and 'PAUSED' or 'SCHEDULED'
end

-- Rare: most calls are about one entry by its id, which just waits.

-- The facts about an entry: {id, place, score, record, header_end}, the last if it can be read. `is_tried`: whether
-- there may be an attempt; without one it has no claim, and no error.
local function facts_of(entry, lanes, is_tried)
  local id, place, record, header_end = entry.id, entry.place, entry.record, entry.header_end
  local facts = header_end and ':h' .. header_end or ''
  local claim = is_tried and redis.call('HGET', keys.claims, id)
  if claim then facts = facts .. tries_in(parse_claim(claim)) end
  if place == keys.refused then
    facts = facts .. ':n' .. entry.score
  elseif place == keys.dead then
    facts = facts .. ':s' .. entry.score
  elseif place == keys.behind then
    local holder, ends = holder_before(record, header_end)
    facts = facts .. quoted('b' .. holder) .. (ends and ':u' .. ends or '')
  end
  local letters = header_end and lanes.any and paused_by(lanes, record, header_end) or ''
  if letters ~= '' then facts = facts .. ':p' .. letters end
  local is_failed = claim or place == keys.refused or is_dead(place)
  local why = is_failed and redis.call('HGET', keys.errors, id)
  return why and facts .. quoted('e' .. why) or facts
end

-- The labels in a filter, as a set; nil if they do not matter.
local function labels_of(hex)
  if hex == '-' then return nil end
  local bytes, labels = string.gsub(hex, '%x%x', function(two) return string.char(tonumber(two, 16)) end), {}
  for at = 1, #bytes, 6 do labels[sub(bytes, at, at + 5)] = true end
  return labels
end

-- Parse a filter that is not empty.
local function filter_of(text)
  local after, before, state, task, queue, tags = string.match(text, '^(%S+) (%S+) (%S+) (%S+) (%S+) ?(.*)$')
  local filter = {
    after = tonumber(after), before = tonumber(before), state = state ~= '-' and state,
    tasks = labels_of(task), queues = labels_of(queue), tags = tags ~= '' and {},
  }
  for tag in string.gmatch(tags, '[^%z]+') do filter.tags[#filter.tags + 1] = tag end
  return filter
end

-- Whether an entry's record matches a filter.
local function has_selected(filter, record, header_end)
  if filter.tasks and not filter.tasks[task_of(record, header_end)] then return false end
  if filter.queues and not filter.queues[queue_of(record, header_end)] then return false end
  if filter.after and due_of(record, header_end) < filter.after then return false end
  if filter.before and due_of(record, header_end) >= filter.before then return false end
  if not filter.tags then return true end
  -- After key and policy, between two NULs. (Taking all of it apart takes three times as long.)
  local at = has_flag(record, header_end, TAGGED) and extras_start(record, header_end)
  for _ = 1, 2 do at = at and string.find(record, '\0', at, true) + 1 end
  for _, tag in ipairs(at and filter.tags or {}) do
    if string.find(record, '\0' .. tag .. '\0', at - 1, true) then return true end
  end
  return false
end

-- Whether a selection that met an entry as this member still includes it.
local function is_meant(entry, member, filter, lanes)
  return serial_of(member) == serial_of(entry.member)
    and (not filter.state or string.find(filter.state, state_of(entry, lanes), 1, true))
    and has_selected(filter, entry.record, entry.header_end)
end
