--[[ agreed: on what the processes that share a store have agreed, so far as a reader has to know it.

KEYS[1]  meta  HASH  schema, shards: what the processes of a store agree on

Returns  {schema, shards}, each '' where no process has joined yet
Cost     O(1)
Keeps    changes nothing
]]
local known = redis.call('HMGET', meta, 'schema', 'shards')
return {known[1] or '', known[2] or ''}
