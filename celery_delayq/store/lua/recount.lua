--[[ recount: let templates count the records that share them.

ARGV[1]     seen    the recount before this one, as it was told when the records had not been looked at; or empty
ARGV[2]     own     names this recount; empty: only tell which one was the last
ARGV[3...]  counts  of each template its name; raise, lower or drop; two numbers:
                    raise: by how many it counted too few, and what it is where that was no number
                    lower: what it counted, and how many share it
                    drop: 0 and 0; nothing shares it, and it has no count
                    and the last insertion number when it was looked at, which lower asks for

Returns  {the last recount, or empty; a word of each: done, or gone: something came or left meanwhile}
Cost     O(templates)
Keeps    no count is too low by it. Raised is by what it was too low, so what comes and leaves meanwhile counts;
         lowered only where nothing did
]]
local seen, own = ARGV[1], ARGV[2]

local FIELDS = 5
local last = redis.call('HGET', keys.meta, 'recounted') or ''
local words = {}
if own == '' then return {last, words} end
allow_when_full(keys.template_uses)

-- The counts go after their templates: what Redis stops half-way leaves a count too many.
local function drop(name)
  redis.call('HDEL', keys.templates, name)
  redis.call('HDEL', keys.template_uses, name)
end

-- Whether HINCRBY takes a count, and has room to go on from it: '01' is no number to it. (checking.py has the same.)
local function is_count(text)
  return text == '0' or #text < 16 and string.find(text, '^-?[1-9]%d*$') ~= nil
end

local changes = {}

function changes.raise(name, by, instead)
  local count = redis.call('HGET', keys.template_uses, name)
  if not count or is_count(count) then
    redis.call('HINCRBY', keys.template_uses, name, by)
  else
    redis.call('HSET', keys.template_uses, name, instead)
  end
  return 'done'
end

function changes.lower(name, from, to, seq)
  local last = redis.call('HGET', keys.meta, 'seq') or '0'
  if redis.call('HGET', keys.template_uses, name) ~= from or last ~= seq then return 'gone' end
  if to == '0' then drop(name) else redis.call('HSET', keys.template_uses, name, to) end
  return 'done'
end

function changes.drop(name)
  local is_counted = redis.call('HEXISTS', keys.template_uses, name) == 1
  if is_counted or redis.call('HEXISTS', keys.templates, name) == 0 then return 'gone' end
  drop(name)
  return 'done'
end

-- Two at once would both raise what was too low: the second is told that it was done.
local is_first = last == seen or last == own
if is_first and last ~= own then redis.call('HSET', keys.meta, 'recounted', own) end
for at = 3, #ARGV, FIELDS do
  local change = changes[ARGV[at + 1]]
  words[#words + 1] = is_first and change(ARGV[at], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4]) or 'gone'
end
return {own, words}
