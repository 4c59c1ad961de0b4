--[[ rules_ahead: the rules at which a writer has to look by now, and when it has to look at the next one; claim them for it.

number  limit  at most so many, 1 to 1000
number  lease  claim them for so long, ms; 0: claim none
text    held   a claim of this writer, whose rules come first and are claimed anew; empty: it has none

reply   now, look, claim, names

Returns  now, us; when to look next, ms, or -1: there are no rules; the claim, empty if there is none; and the names, those
         that wait longest first
Cost     O(log N + limit); after the clock was set back, once more for each thousand rules
Keeps    no two writers have a claim on one rule, until it lapses: other writers look at the rule then
]]
local MOST_BACK, MOST_LOOKS = 30000, 1000
local now_us = clock_us()
local now, claim, names = math.floor(now_us / 1000), '', {}
local at = tonumber(redis.call('HGET', keys.meta, 'rules_at')) or 0
-- Redis's clock was set back since rules were claimed, or a replica took over whose clock is behind: the rules have to be
-- looked at by this clock, and not when the other one would have said so.
if at - now > MOST_BACK then
  allow_when_full(keys.rules)
  local later = redis.call('ZRANGEBYSCORE', keys.rules_next, '(' .. whole(now), '+inf', 'LIMIT', 0, MOST_LOOKS)
  for _, name in ipairs(later) do redis.call('ZADD', keys.rules_next, 0, name) end
  if #later < MOST_LOOKS then redis.call('HSET', keys.meta, 'rules_at', whole(now)) end
end
-- A claim is the time of the next look, to the microsecond, so no two are the same.
if held ~= '' and tonumber(held) > now then
  names = redis.call('ZRANGEBYSCORE', keys.rules_next, held, held, 'LIMIT', 0, limit)
end
local due = redis.call('ZRANGEBYSCORE', keys.rules_next, '-inf', whole(now), 'LIMIT', 0, limit - #names)
for _, name in ipairs(due) do names[#names + 1] = name end
if lease > 0 and #names > 0 then
  claim = string.format('%.3f', now_us / 1000 + lease)
  allow_when_full(keys.rules)
  for _, name in ipairs(names) do redis.call('ZADD', keys.rules_next, claim, name) end
  if now > at then redis.call('HSET', keys.meta, 'rules_at', whole(now)) end
end
local ahead = redis.call('ZRANGEBYSCORE', keys.rules_next, '(' .. whole(now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
return {now_us, ahead[2] or -1, claim, names}
