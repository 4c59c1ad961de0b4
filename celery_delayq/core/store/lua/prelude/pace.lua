--[[ Catching up: overdue entries leave at a rate, over all scanners; entries that fall due meanwhile are not held up.

meta  caught_up -> when the next overdue entry may leave, us; there only while the setting is on
]]
local OVERDUE_BY = 1000 -- ms after its due time from which an entry counts as overdue
local SAVED_US = 100000 -- unused time that may be made up for

-- When a look at an index is needed, ms, or -1.
local function next_head(index, now, pace)
  local head = head_of(index)
  return pace and paced_head(index, head, now, pace) or head
end

-- Rare: there is no rate, unless a setting says so.

-- How many overdue entries may leave, at a rate > 0: {left, at in us, us between two}.
local function pace_of(rate, now_us)
  local us = 1000000 / rate
  local at = tonumber(redis.call('HGET', keys.meta, 'caught_up') or '') or 0
  -- Not too far ahead: Redis's clock may have been set back.
  at = math.min(math.max(at, now_us - SAVED_US), now_us + us)
  return {left = at <= now_us and math.floor((now_us - at) / us) + 1 or 0, at = at, us = us}
end

-- Note that so many of them leave.
local function spend(pace, count)
  if count == 0 then return end
  pace.left, pace.at = pace.left - count, pace.at + count * pace.us
  redis.call('HSET', keys.meta, 'caught_up', whole(math.ceil(pace.at)))
end

-- As due_members: first those that are not overdue, then the others, if some of them may leave.
local function paced_members(index, now, limit, pace)
  local since = whole(now - OVERDUE_BY)
  local members = redis.call('ZRANGEBYSCORE', index, since, whole(now), 'LIMIT', 0, limit - math.floor(limit / 4))
  local fresh = #members
  if pace.left > 0 then
    local old = redis.call('ZRANGEBYSCORE', index, '-inf', '(' .. since, 'LIMIT', 0, limit - fresh)
    for at, member in ipairs(old) do members[fresh + at] = member end
  end
  return members, fresh
end

-- When a look at an index with this head is needed, ms, or -1: later than that, if it may not leave yet.
local function paced_head(index, head, now, pace)
  if pace.left > 0 or head < 0 or head >= now - OVERDUE_BY then return head end
  local later = math.max(now, math.ceil(pace.at / 1000))
  local since = whole(now - OVERDUE_BY)
  local fresh = redis.call('ZRANGEBYSCORE', index, since, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  return fresh[2] and math.min(tonumber(fresh[2]), later) or later
end
