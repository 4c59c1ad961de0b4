--[[ rule: set a recurring rule, pause or resume it, remove it, or note that it was cleared up.

change   a call: see prelude/call.lua
text     called  its name
text     what    put | pause | resume | remove | cleared
text     digest  of put: the digest of what it is; of cleared: the revision that was cleared up
text     rest    of put: the rest of its row, see prelude/rules.lua

Returns  the answer, a text: new; changed; same, it is set already, or so; done; not_found
Cost     O(log N)
Keeps    a rule writes nothing until what it wrote before was cleared up
]]
return change(request, function(call)
  if is_fenced(call, name_of_rule(called)) then return nil, 'stale' end
  local rule, answer = rule_of(called), 'done'
  if what == 'put' then
    if not rule then
      -- No revision of a rule that was removed comes again: late requests and ids of its runs name it.
      rule, answer = {revision = call.now, last = call.now, flags = '-n'}, 'new'
    elseif rule.digest == digest and not string.find(rule.flags, 'r') then
      return 'same'
    else
      answer = 'changed'
      rule.revision, rule.last = rule.revision + 1, call.now
      flag_rule(rule, 'r', false)
      flag_rule(rule, 'c', true)
      flag_rule(rule, 'n', true)
    end
    rule.digest, rule.rest = digest, rest
  elseif not rule or what == 'cleared' and whole(rule.revision) ~= digest then
    allow_when_full(keys.rules)
    if not rule then redis.call('ZREM', keys.rules_next, called) end
    return 'not_found'
  elseif what == 'cleared' then
    if string.find(rule.flags, 'r') then answer = 'removed' end
    flag_rule(rule, 'c', false)
  else
    local is_paused = string.find(rule.flags, 'p') ~= nil
    if what == 'pause' and is_paused or what == 'resume' and not is_paused then return 'same' end
    if what == 'remove' then flag_rule(rule, 'r', true) else flag_rule(rule, 'p', what == 'pause') end
    if what == 'resume' then
      rule.last = call.now
      flag_rule(rule, 'n', true)
    end
    rule.revision = rule.revision + 1
    flag_rule(rule, 'c', true)
  end
  if what ~= 'put' then allow_when_full(keys.rules) end
  fence(call, name_of_rule(called))
  if answer == 'removed' then
    redis.call('HDEL', keys.rules, called)
    redis.call('ZREM', keys.rules_next, called)
    return 'done'
  end
  if string.find(rule.flags, 'p') and not string.find(rule.flags, '[cr]') then
    redis.call('ZREM', keys.rules_next, called) -- there is nothing to look at until it is resumed
  else
    redis.call('ZADD', keys.rules_next, whole(call.now), called)
  end
  keep_rule(called, rule)
  return answer
end)
