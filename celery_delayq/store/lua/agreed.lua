--[[ agreed: the terms on which the processes of a store have agreed, for a reader.

Returns  {schema, shards, broker, hosts}, each '' where no process has joined yet; the last two: no scanner
Cost     O(1)
Keeps    changes nothing
]]
local known = redis.call('HMGET', keys.meta, 'schema', 'shards', 'broker', 'hosts')
return {known[1] or '', known[2] or '', known[3] or '', known[4] or ''}
