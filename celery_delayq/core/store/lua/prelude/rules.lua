--[[ Rules of recurring tasks.

row  with a blank between two: its revision; its last slot, ms: no slot up to that is written any more; its flags; the digest
     of what it is; and the rest, which only callers read: its unique key, or else its name, which says its shard, with %XX
     for what is no letter or digit; and its plan
flags  `-`, and n: it has written nothing yet; p: it is paused; c: what it has written is to be cleared up; r: the same, and
       it goes then. With one of the last three it writes nothing

`rules` has the row of each name, and `rules_next` when a writer looks at it, ms.
]]
-- Rare: an app has rules or it has none.

-- The name for a rule's fence, among ids and keys: those are UTF-8, which has no such byte.
local function name_of_rule(name)
  return '\254' .. name
end

-- The parts of a rule's row; nil: there is none, or another program wrote it.
local function rule_of(name)
  local row = redis.call('HGET', keys.rules, name)
  local revision, last, flags, digest, rest = string.match(row or '', '^(%d+) (%d+) (%-%l*) (%x+) (.*)$')
  if not revision then return nil end
  return {revision = tonumber(revision), last = tonumber(last), flags = flags, digest = digest, rest = rest}
end

local function keep_rule(name, rule)
  local parts = {whole(rule.revision), whole(rule.last), rule.flags, rule.digest, rule.rest}
  redis.call('HSET', keys.rules, name, table.concat(parts, ' '))
end

-- A rule with a flag, or without it.
local function flag_rule(rule, flag, is_set)
  rule.flags = string.gsub(rule.flags, flag, '') .. (is_set and flag or '')
end
