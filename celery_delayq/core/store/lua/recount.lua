--[[ recount: correct how many records each template counts.

text        seen    the recount before this one, as read before the records were looked at; or empty
text        own     names this recount; empty: only tell which one was the last
rows...     counts  of each template:
         name       its name
         how        raise, lower or drop
         from       raise: by how many its count is too low; lower: its count; drop: 0
         to         raise: the count, if there was no number; lower: how many share it; drop: 0
         seq        the last insertion number when it was looked at, for lower

Returns  {the last recount, or empty; a word for each: done, or gone: records came or left meanwhile}
Cost     O(templates)
Keeps    it makes no count too low. A count is raised by the difference, so records that come and leave meanwhile are
         included; it is lowered only if none did
]]
local last = redis.call('HGET', keys.meta, 'recounted') or ''
local words = {}
if own == '' then return {last, words} end
allow_when_full(keys.template_uses)

-- The count goes after its template: if Redis stops the script half-way, there is a count too many.
local function drop(name)
  redis.call('HDEL', keys.templates, name)
  redis.call('HDEL', keys.template_uses, name)
end

-- Whether HINCRBY accepts a count, with room to increase it: to it, '01' is no number. (check.py has the same.)
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

-- Two recounts at once would both raise a low count, so the second one changes nothing.
local is_first = last == seen or last == own
if is_first and last ~= own then redis.call('HSET', keys.meta, 'recounted', own) end
for at, one in ipairs(counts) do
  words[at] = is_first and changes[one.how](one.name, one.from, one.to, one.seq) or 'gone'
end
return {own, words}
