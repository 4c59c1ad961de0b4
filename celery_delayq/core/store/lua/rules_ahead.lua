--[[ rules_ahead: the rules at which a writer has to look by now, and when it has to look at the next one.

number  limit  at most so many, 1 to 1000

Returns  now, us; when to look next, ms, or -1: there are no rules; and the names, those that wait longest first
Cost     O(log N + limit)
Keeps    changes nothing
]]
local now_us = clock_us()
local now = whole(math.floor(now_us / 1000))
local names = redis.call('ZRANGEBYSCORE', keys.rules_next, '-inf', now, 'LIMIT', 0, limit)
local ahead = redis.call('ZRANGEBYSCORE', keys.rules_next, '(' .. now, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
return {now_us, ahead[2] or -1, names}
