--[[ history: the latest events, newest first.

number   limit  most events, > 0

Returns  {event, ...}
Cost     O(M), M <= limit
Keeps    changes nothing
]]
return redis.call('LRANGE', keys.history, 0, limit - 1)
