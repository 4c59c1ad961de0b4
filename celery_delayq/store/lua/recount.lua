--[[ recount: let templates count the records that share them.

text        seen    the recount before this one, as it was told when the records had not been looked at; or empty
text        own     names this recount; empty: only tell which one was the last
rows...     counts  of each template:
         name       its name
         how        raise, lower or drop
         from       raise: by how many it counted too few; lower: what it counted; drop: 0
         to         raise: what it is where that was no number; lower: how many share it; drop: 0
         seq        the last insertion number when it was looked at, which lower asks for

Returns  {the last recount, or empty; a word of each: done, or gone: something came or left meanwhile}
Cost     O(templates)
Keeps    no count is too low by it. Raised is by what it was too low, so what comes and leaves meanwhile counts;
         lowered only where nothing did
]]
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
for at, one in ipairs(counts) do
  words[at] = is_first and changes[one.how](one.name, one.from, one.to, one.seq) or 'gone'
end
return {own, words}
