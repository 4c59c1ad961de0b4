--[[ rule: set a recurring rule, edit, pause or resume it, skip a slot, remove it, load it, or note that it was cleared up.

change   a call: see prelude/call.lua
text     called  its name
text     what    put | place | load | edit | pause | resume | skip | unskip | forget | rewind | again | remove | sweep |
                 move | cleared; place: put, unless there is one; rewind: go on from now, as Redis's clock was ahead when its
                 last slot was written; again: write the next slot anew, as its run was sent now; forget: a skip of one slot;
                 sweep: remove one that is declared, as no worker says it any more
text     given   of put, place and load: fields of its row, see prelude/rules.lua; without `last` a put begins now. Of
                 move: the same, for another shard, where it is placed before it goes here; of pause: `beat`, if beat
                 sends its entry now, or empty; of edit: the edit, see prelude/rules.lua, or empty: back to the plan; of
                 cleared, rewind, again and sweep: the revision that was read; of skip: the same, a blank, and the skip,
                 as in the row; of forget: the slot
number   most    put, place and load nothing new if the shard has so many rules

Returns  the answer, a text: new; changed; back, changed to what it was before by another host; noted, only its version or
         `declared` is new; same, it is set already, or so; older, a later version is set; full; done; written, and the
         run of a skipped slot is to be cancelled; not_found
Cost     O(log N)
Keeps    a rule writes nothing until what it wrote before was cleared up
]]
local MOST_PAST, MOST_SKIPPED = 5, 100

-- The slot after which a rule goes on that is changed or resumed now. The runs of the slots up to it were due.
local function since(call, rule)
  return call.now - offset_of(rule)
end

-- Let a rule go on from now, or after another slot, under a revision that begins.
local function go_on(call, rule, last)
  rule.last = last or since(call, rule)
  rule.from = whole(rule.last)
end

-- Keep what tells which runs a revision had that ends now. Before its offset changes.
local function note_past(call, rule)
  if string.find(rule.flags, '[cnpr]') then return end -- it had none
  local is_json, found = pcall(cjson.decode, rule.edit or rule.plan)
  local timing = is_json and type(found) == 'table' and (found.timing or found[3])
  if type(timing) ~= 'table' then return end
  for at = 1, 3 do
    if type(timing[at]) ~= 'string' then return end
  end
  local was_read, earlier = pcall(cjson.decode, rule.past or '[]')
  if not was_read or type(earlier) ~= 'table' then earlier = {} end
  local upto = whole(math.min(since(call, rule), rule.last))
  table.insert(earlier, 1, {
    whole(rule.revision), rule.from or rule.since or '0', upto, whole(offset_of(rule)), {timing[1], timing[2], timing[3]},
  })
  earlier[MOST_PAST + 1] = nil
  rule.past = cjson.encode(earlier)
end

-- Skip a slot, or forget that; return the answer.
local function skip(call, rule)
  local revision, new = string.match(given, '^(%d+) (%d+:%S*)$')
  if what == 'skip' and (revision ~= whole(rule.revision) or string.find(rule.flags, '[cpr]')) then return 'changed' end
  local slot, kept = string.match(new or given, '^%d+'), {}
  for _, one in ipairs(skips_of(rule)) do
    if sub(one, 1, 13) ~= slot then kept[#kept + 1] = one end
  end
  if new then
    if #kept >= MOST_SKIPPED then return 'full' end
    kept[#kept + 1] = new
  end
  set_skips(rule, kept, since(call, rule))
  return new and tonumber(slot) <= rule.last and 'written' or 'done'
end

-- Merge a rule of a dump with the one that is here. If that is not the same one, the dump brings its runs up to the last
-- slot, and this store gives up its own.
local function merge(call, rule, given)
  if rule.since == given.since then return 'same' end
  note_past(call, rule)
  go_on(call, rule, math.max(tonumber(given.last), since(call, rule)))
  return 'changed'
end

local function put(call, rule, given)
  local is_removed = string.find(rule.flags, 'r') ~= nil
  if not is_removed then
    if what == 'place' then return 'same' end
    if tonumber(given.version) < tonumber(rule.version) then return 'older' end
    if rule.digest == given.digest then
      local declared = given.declared or rule.declared
      if rule.version == given.version and rule.declared == declared then return 'same' end
      rule.version, rule.declared, rule.app = given.version, declared, given.app
      return 'noted'
    end
  end
  local answer = not is_removed and given.digest == rule.before and given.by ~= rule.by and 'back' or 'changed'
  note_past(call, rule)
  if is_removed then rule.edit, rule.skipped, rule.past, rule.omitted = nil, nil, nil, nil end
  local last = not rule.edit and tonumber(given.last) or since(call, rule)
  rule.before, rule.to, rule.declared = rule.digest, nil, nil
  for name, value in pairs(given) do
    -- It was taken over when it was set, and not now.
    if name ~= 'flags' and (name ~= 'since' or is_removed) then rule[name] = value end
  end
  go_on(call, rule, last)
  flag_rule(rule, 'r', false)
  return answer
end

return change(request, function(call)
  if is_fenced(call, name_of_rule(called)) then return nil, 'stale' end
  -- Even if nothing changes: the caller relies on it that nothing older comes after the answer.
  call.fenced = {name_of_rule(called), seven_bytes(call.now_us)}
  local rule, answer = rule_of(called), 'done'
  local is_given = what == 'put' or what == 'place' or what == 'load'
  local row = is_given and cjson.decode(given)
  if is_given and rule then
    answer = (what == 'load' and merge or put)(call, rule, row)
    if answer == 'same' or answer == 'older' then return answer end
    if answer ~= 'noted' then
      rule.revision = rule.revision + 1
      flag_rule(rule, 'c', true)
      flag_rule(rule, 'n', what ~= 'load' or rule.last <= call.now)
    end
  elseif is_given then
    if redis.call('HLEN', keys.rules) >= most then return 'full' end
    rule, answer = row, 'new'
    -- No revision of a rule that was removed comes again: late requests and ids of its runs name it. One of a dump keeps
    -- its own, so that a run which the dump has is not written again.
    rule.revision, rule.last = tonumber(row.revision) or call.now, tonumber(row.last) or since(call, row)
    rule.since = row.since or whole(call.now)
    rule.from = row.from or what == 'load' and row.since or whole(rule.last)
    if what == 'load' then rule.brought = whole(call.now) end
  elseif not rule or string.find('cleared rewind again sweep', what, 1, true) and whole(rule.revision) ~= given
    or what == 'sweep' and rule.declared ~= '1' then
    allow_when_full(keys.rules)
    if not rule then redis.call('ZREM', keys.rules_next, called) end
    return 'not_found'
  elseif what == 'skip' or what == 'forget' then
    allow_when_full(keys.rules)
    answer = skip(call, rule)
    if answer == 'done' or answer == 'written' then keep_rule(called, rule) end
    return answer
  elseif what == 'again' then
    allow_when_full(keys.rules)
    note_past(call, rule)
    go_on(call, rule, math.min(rule.last, since(call, rule)))
    flag_rule(rule, 'n', true)
    rule.revision = rule.revision + 1 -- as the ids of this one are taken
    redis.call('ZADD', keys.rules_next, 0, called)
    keep_rule(called, rule)
    redis.pcall('PUBLISH', keys.wake, 'rules')
    return 'done'
  elseif what == 'cleared' then
    if string.find(rule.flags, 'r') then answer = 'removed' end
    flag_rule(rule, 'c', false)
    -- The clock was ahead when a dump brought it. What it writes now would count as written before that.
    if (tonumber(rule.brought) or 0) > call.now then rule.brought = nil end
  else
    local is_paused = string.find(rule.flags, 'p') ~= nil
    local beat = what == 'pause' and given ~= '' and given or nil
    if what == 'pause' and is_paused and rule.beat == beat or what == 'resume' and not is_paused then return 'same' end
    if what == 'edit' and not rule.edit and given == '' or what == 'unskip' and not rule.skipped then return 'same' end
    note_past(call, rule)
    if what == 'remove' or what == 'sweep' or what == 'move' then
      flag_rule(rule, 'r', true)
      rule.to = what == 'move' and given or nil
    elseif what == 'pause' or what == 'resume' then
      flag_rule(rule, 'p', what == 'pause')
      rule.beat = beat
    elseif what == 'edit' then
      rule.edit = given ~= '' and given or nil
    elseif what == 'unskip' then
      rule.skipped = nil
    end
    if what ~= 'pause' and not string.find(rule.flags, 'r') then
      go_on(call, rule)
      flag_rule(rule, 'n', true)
    end
    rule.revision = rule.revision + 1
    flag_rule(rule, 'c', true)
  end
  if not is_given then allow_when_full(keys.rules) end
  redis.call('HDEL', keys.rules_trouble, called)
  rule.failed = nil
  if answer == 'removed' then
    redis.call('HDEL', keys.rules, called)
    redis.call('ZREM', keys.rules_next, called)
    return 'done'
  end
  if string.find(rule.flags, 'p') and not string.find(rule.flags, '[cr]') then
    redis.call('ZREM', keys.rules_next, called) -- there is nothing to look at until it is resumed
  else
    redis.call('ZADD', keys.rules_next, 0, called) -- at once, even if the clock is set back before
  end
  keep_rule(called, rule)
  if is_given or what == 'resume' or what == 'edit' or what == 'unskip' then redis.pcall('PUBLISH', keys.wake, 'rules') end
  return answer
end)
