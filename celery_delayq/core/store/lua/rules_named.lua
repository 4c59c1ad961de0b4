--[[ rules_named: name the rules that a worker declares and the tasks that it knows; learn what the others name.

text  process  the worker; empty: only read
text  digest   of `names`; empty: the worker has ended
text  names    its rules and tasks, which only callers read
text  unknown  what it has found as it looked at all rules, which only callers read; empty: it did not look
flag  full     1: return `found` in any case; 0: only if it has not named these for two minutes

reply  now, since, knows, looks, unknown, found of names living

Returns  now, us; since when there were such workers without a gap of five minutes, ms; 1: it has named some before, or 0;
         1: it is the one of two minutes that looks at all rules, 2: and removes those that nobody has named for ten, or 0;
         what was found so last, unless that is ten minutes ago; and each set of names of these ten minutes, with how
         many workers name it that have not ended
Cost     O(N), N workers, each two minutes; else O(1)
Keeps    a worker removes only after ten minutes in which at least one worker named its rules each five minutes, so a common
         outage, a new store and one that was loaded or resharded cost no rule
]]
-- Fields: = and a digest -> when a worker named these rules and tasks, ms, and the names; @ and a worker -> when it did so,
-- ms, and which digest; ? -> when one looked at all rules, ms, and what it found; empty -> since when such workers are met,
-- when one was, and when one looked.
local LIVING, GAP, BETWEEN = 600000, 300000, 120000
local now_us = clock_us()
local now = math.floor(now_us / 1000)

-- When something was named, ms, and the rest; 0 if that is ten minutes ago.
local function field_in(text)
  local at, rest = string.match(text or '', '^(%d+) (.*)$')
  at = tonumber(at or 0)
  return now - at <= LIVING and at or 0, rest or ''
end

local own = process ~= '' and redis.call('HGET', keys.rules_named, '@' .. process)
local named, named_digest = field_in(own or '')
local since, last, swept = string.match(redis.call('HGET', keys.rules_named, '') or '', '^(%d+) (%d+) (%d+)$')
local looks, found = 0, {}
if process ~= '' and digest == '' then
  redis.call('HDEL', keys.rules_named, '@' .. process)
elseif full or unknown ~= '' or now - named >= BETWEEN or named > now or named_digest ~= digest then
  if process ~= '' then
    if not last or now - tonumber(last) > GAP or tonumber(last) > now then since, swept = now, now end
    if now - tonumber(swept) >= BETWEEN then looks = now - tonumber(since) >= LIVING and 2 or 1 end
    if looks > 0 then swept = now end
    allow_when_full(keys.rules_named)
    redis.call('HSET', keys.rules_named, '', table.concat({whole(since), whole(now), whole(swept)}, ' '),
      '@' .. process, whole(now) .. ' ' .. digest, '=' .. digest, whole(now) .. ' ' .. names)
    if unknown ~= '' then redis.call('HSET', keys.rules_named, '?', whole(now) .. ' ' .. unknown) end
  end
  local fields, cursor, living = {}, '0', {}
  repeat
    local page = redis.call('HSCAN', keys.rules_named, cursor, 'COUNT', 1000)
    cursor = page[1]
    for at = 1, #page[2], 2 do fields[page[2][at]] = page[2][at + 1] end
  until cursor == '0'
  for field, value in pairs(fields) do
    local at, text = field_in(value)
    if string.sub(field, 1, 1) == '@' and at > 0 then living[text] = (living[text] or 0) + 1 end
  end
  for field, value in pairs(fields) do
    local at, text = field_in(value)
    if at == 0 and field ~= '' and process ~= '' then
      redis.call('HDEL', keys.rules_named, field)
    elseif at > 0 and string.sub(field, 1, 1) == '=' then
      found[#found + 1], found[#found + 2] = text, living[string.sub(field, 2)] or 0
    end
  end
end
local at, was_unknown = field_in(redis.call('HGET', keys.rules_named, '?'))
return {now_us, tonumber(since or 0), own and 1 or 0, looks, at > 0 and was_unknown or '', found}
