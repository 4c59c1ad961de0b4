--[[ agreed: the settings on which the processes of a store agreed, as far as readers need them.

closed   9, see prelude/closed.lua

reply    schema, shards, broker, hosts, format, began

Returns  each '' if no process has joined yet; hosts, if no scanner has. format: the newest that records and rules may
         have; began: when the shard was joined first, ms, or '' if that is not known
Cost     O(1)
Keeps    changes nothing
]]
local known = redis.call('HMGET', keys.meta, 'schema', 'shards', 'broker', 'hosts', 'format', 'began')
return {known[1] or '', known[2] or '', known[3] or '', known[4] or '', known[5] or known[1] and FIRST or '', known[6] or ''}
