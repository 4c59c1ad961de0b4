--[[ rules_ahead: the rules at which a writer has to look by now, and when it has to look at the next one; claim them for it.

number   limit    at most so many, 1 to 1000
number   lease    claim them for so long, ms; 0: claim none
text     held     a claim of this writer, whose rules come first and are claimed anew; empty: it has none
text     over     a claim of this writer that has ended; empty: it has none. If rules still have it, their runs could not be
                  made: they become due, and the other writers are woken
text...  skipped  rules that this writer leaves to others, unless they were changed; 0 to 1000

reply   now, look, claim, names, left, writers

Returns  now, us; when to look next, ms, or -1: there are no rules; the claim, empty if there is none; the names, those
         that wait longest first; the rules of `over`; and how many writers there are, 0 if none is left
Cost     O(log N + limit + skipped); after the clock was set back, once more for each thousand rules
Keeps    no two writers have a claim on one rule, until it lapses: other writers look at the rule then. Rules of a later
         format are laid aside, and never claimed; then the next look is now, as this one may have met no other rule
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
local passed, left, writers = {}, {}, 0
for _, name in ipairs(skipped) do passed[name] = true end
if over ~= '' then left = redis.call('ZRANGEBYSCORE', keys.rules_next, over, over, 'LIMIT', 0, MOST_LOOKS) end
if #left > 0 then
  allow_when_full(keys.rules)
  for _, name in ipairs(left) do
    passed[name] = true
    redis.call('ZADD', keys.rules_next, whole(now), name)
  end
  writers = redis.call('ZCOUNT', keys.scanners, whole(now), '+inf')
  redis.pcall('PUBLISH', keys.wake, 'rules')
end
local is_aside = false
local function take(first, last)
  local rows = redis.call('ZRANGEBYSCORE', keys.rules_next, first, last, 'WITHSCORES',
    'LIMIT', 0, limit + #skipped + #left)
  for at = 1, #rows, 2 do
    -- One that was changed has 0.
    if #names < limit and (rows[at + 1] == '0' or not passed[rows[at]]) then
      if lay_rule_aside(rows[at], now) then
        is_aside = true
      else
        names[#names + 1] = rows[at]
      end
    end
  end
end
-- A claim is the time of the next look, to the microsecond, so no two are the same.
if held ~= '' and tonumber(held) > now then take(held, held) end
take(first_look(), whole(now))
if lease > 0 and #names > 0 then
  claim = string.format('%.3f', now_us / 1000 + lease)
  allow_when_full(keys.rules)
  for _, name in ipairs(names) do redis.call('ZADD', keys.rules_next, claim, name) end
  if now > at then redis.call('HSET', keys.meta, 'rules_at', whole(now)) end
end
local ahead = redis.call('ZRANGEBYSCORE', keys.rules_next, '(' .. whole(now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
return {now_us, is_aside and now or ahead[2] or -1, claim, names, left, writers}
