--[[ agreed: the settings on which the processes of a store agreed, as far as readers need them.

closed   9, see prelude/closed.lua

Returns  {schema, shards, broker, hosts}, each '' if no process has joined yet; the last two, if no scanner has
Cost     O(1)
Keeps    changes nothing
]]
local known = redis.call('HMGET', keys.meta, 'schema', 'shards', 'broker', 'hosts')
return {known[1] or '', known[2] or '', known[3] or '', known[4] or ''}
