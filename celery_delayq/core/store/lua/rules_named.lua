--[[ rules_named: name the rules that this process has from a source, such as `beat_schedule`; learn those that others have.

text  digest  of these names; empty: it has none
text  names   the names, which only callers read

reply  now, sweeps, knows, found

Returns  now, us; 1: this process is the one of two minutes that removes rules which nobody has named for ten, or 0;
         1: a process was here before, or 0: the store is new; and the names of all living processes, as each set of
         them was given
Cost     O(S), S different sets of names
Keeps    a process sweeps only after ten minutes in which at least one process named its rules each five minutes, so a common
         outage, a new store and one that was loaded or resharded cost no rule
]]
local LIVING, GAP, BETWEEN = 600000, 300000, 120000
local now_us = clock_us()
local now = math.floor(now_us / 1000)
local since, last, swept = string.match(redis.call('HGET', keys.rules_named, '') or '', '^(%d+) (%d+) (%d+)$')
if not last or now - tonumber(last) > GAP or tonumber(last) > now then since, swept = now, now end
local sweeps = now - tonumber(since) >= LIVING and now - tonumber(swept) >= BETWEEN
if sweeps then swept = now end
local found, fields = {}, redis.call('HSCAN', keys.rules_named, '0', 'COUNT', 1000)[2]
allow_when_full(keys.rules_named)
for at = 1, #fields, 2 do
  local set, named, text = fields[at], string.match(fields[at + 1], '^(%d+) (.*)$')
  if set ~= '' and set ~= digest then
    if not named or now - tonumber(named) > LIVING then
      redis.call('HDEL', keys.rules_named, set)
    else
      found[#found + 1] = text
    end
  end
end
redis.call('HSET', keys.rules_named, '', table.concat({whole(since), whole(now), whole(swept)}, ' '))
if digest ~= '' then
  redis.call('HSET', keys.rules_named, digest, whole(now) .. ' ' .. names)
  found[#found + 1] = names
end
return {now_us, sweeps and 1 or 0, last and 1 or 0, found}
