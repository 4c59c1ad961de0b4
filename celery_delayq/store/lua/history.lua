--[[ history: what happened last, the newest first.

ARGV[1]  limit  most events, > 0

Returns  {event, ...}
Cost     O(M), M <= limit
Keeps    changes nothing
]]
local limit = tonumber(ARGV[1])

return redis.call('LRANGE', keys.history, 0, limit - 1)
