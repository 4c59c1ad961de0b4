--[[ agreed: on what the processes that share a store have agreed, so far as a reader has to know it.

Returns  {schema, shards, broker, hosts}, each '' where no process has joined yet; the last two: no scanner
Cost     O(1)
Keeps    changes nothing
]]
local known = redis.call('HMGET', keys.meta, 'schema', 'shards', 'broker', 'hosts')
return {known[1] or '', known[2] or '', known[3] or '', known[4] or ''}
