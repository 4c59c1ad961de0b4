--[[ history: the latest events, newest first.

number   events   at most so many events of entries that were changed by themselves
number   changes  at most so many lines of changes of many, and of pauses
number   parts    at most so many events of entries that a change of many changed

Returns  {most, {event, ...}, {line, ...}, {event, ...}}, most: how many the store keeps of each in all its shards, 0: none
Cost     O(M), M <= events + changes + parts
Keeps    changes nothing
]]
local function latest(key, limit)
  return limit > 0 and redis.call('LRANGE', key, 0, limit - 1) or {}
end
local most = string.match(redis.call('HGET', keys.meta, 'history') or '', '^%d+')
return {tonumber(most or 0), latest(keys.history, events), latest(keys.history_changes, changes),
  latest(keys.history_parts, parts)}
