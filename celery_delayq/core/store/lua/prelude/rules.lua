--[[ Rules of recurring tasks.

row  JSON: revision and last, texts of whole numbers: no slot up to last, ms, is written any more; flags; digest of what
     it is; home: its unique key, or else its name, which says its shard; plan, which only callers read, but for the
     format at its start, `[1,`: the lowest that a release must know to write its runs; version; before,
     the digest before this one; by, the host that said it; source; since, ms, from when on its slots are its own, and no
     longer beat's; brought, ms, when a dump brought it; offset, ms, by which its runs are later than their slots; to, its
     row on another shard, which is put there before it goes here; failed: how many times in a row its next run could not
     be made; beat: beat sends its entry while it is paused; declared, `1`: workers of `app` say it at each start, so it
     goes with the last of them. Other fields stay as they are. And
     edit     a person's change of its schedule, which lies over the plan: JSON, timing, [text, zone, dialect]; offset, in
              place of the row's, as text; by, who; at, ms
     skipped  slots that a person skipped, in order, a blank between two: each, 13 digits, a colon, and the id of the run
              that was cancelled, or of the one that is not written
     omitted  the latest slot that got no run, ms, a blank, and why not
     from     slots after this one, ms, have this revision
     past     the latest revisions that may have had runs, newest first, JSON: of each the revision, `from`, the slot up to
              which its runs were due, its offset, and its timing
flags  `-`, and n: it has written nothing yet; p: it is paused; c: what it has written is to be cleared up; r: the same,
       and it goes then. With one of the last three it writes nothing

`rules` has the row of each name, `rules_next` when a writer looks at it, ms, and `rules_trouble` why its next run cannot
be made.

A later format keeps all of this, and may change what follows the number of the plan, and add flags. A writer that does not
know it lays such a rule aside when its time has come: in `rules_next` it then has that time, less ASIDE for each number of
its format. So it is due, but only a writer that knows its format looks so far down.
]]
local ASIDE = 10000000000000 -- ms, more than any time
-- Rare: an app has rules or it has none.

-- The name for a rule's fence, among ids and keys: those are UTF-8, which has no such byte.
local function name_of_rule(name)
  return '\254' .. name
end

-- A rule's row; nil: there is none, or another program wrote it.
local function rule_of(name)
  local is_json, rule = pcall(cjson.decode, redis.call('HGET', keys.rules, name) or '')
  if not is_json or type(rule) ~= 'table' then return nil end
  rule.revision, rule.last = tonumber(rule.revision), tonumber(rule.last)
  return rule.revision and rule.last and type(rule.flags) == 'string' and rule or nil
end

-- By how much a rule's runs are later than their slots, ms.
local function offset_of(rule)
  return tonumber(string.match(rule.edit or '', '"offset":"(%d+)"') or rule.offset) or 0
end

-- Whether a person skips a slot.
local function skips_slot(rule, slot)
  return string.find(' ' .. (rule.skipped or ''), ' ' .. whole(slot) .. ':', 1, true) ~= nil
end

-- Set the skips of a rule: those of slots up to `over` are forgotten, but for the latest.
local function set_skips(rule, skips_now, over)
  table.sort(skips_now)
  while skips_now[2] and tonumber(sub(skips_now[2], 1, 13)) <= over do table.remove(skips_now, 1) end
  rule.skipped = skips_now[1] and table.concat(skips_now, ' ') or nil
end

local function skips_of(rule)
  local found = {}
  for skip in string.gmatch(rule.skipped or '', '%d%d%d%d%d%d%d%d%d%d%d%d%d:%S*') do found[#found + 1] = skip end
  return found
end

-- The lowest time at which a writer of this release has to look.
local function first_look()
  return whole(-tonumber(FORMAT) * ASIDE)
end

-- Lay a rule aside that has a later format; return whether it has.
local function lay_rule_aside(name, now)
  local rule = rule_of(name)
  local format = tonumber(rule and type(rule.plan) == 'string' and string.match(rule.plan, '^%[(%d),') or FIRST)
  if format <= tonumber(FORMAT) then return false end
  allow_when_full(keys.rules)
  redis.call('ZADD', keys.rules_next, whole(now - format * ASIDE), name)
  return true
end

-- Since when a rule waits for a writer that knows its format, ms, or nil.
local function rule_aside_since()
  local first = tonumber(redis.call('ZRANGE', keys.rules_next, 0, 0, 'WITHSCORES')[2] or 0)
  return first < 0 and first % ASIDE or nil
end

local function keep_rule(name, rule)
  -- As texts: cjson writes numbers with 14 digits.
  rule.revision, rule.last = whole(rule.revision), whole(rule.last)
  local fields, parts = {}, {}
  for field in pairs(rule) do fields[#fields + 1] = field end
  table.sort(fields) -- or one rule has many texts
  for at, field in ipairs(fields) do parts[at] = cjson.encode(field) .. ':' .. cjson.encode(rule[field]) end
  redis.call('HSET', keys.rules, name, '{' .. table.concat(parts, ',') .. '}')
end

-- A rule with a flag, or without it.
local function flag_rule(rule, flag, is_set)
  rule.flags = string.gsub(rule.flags, flag, '') .. (is_set and flag or '')
end
