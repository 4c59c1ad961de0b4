--[[ What is due, and who is to wake for it. ]]
local FRESH = 20 -- ms for which what fell due counts as fresh, see due_members

local function head_of(index)
  local head = redis.call('ZRANGE', index, 0, 0, 'WITHSCORES')
  return head[2] and tonumber(head[2]) or -1
end

-- What to take next of an index: members that are due, in due order, at most `limit`. Where more than
-- that is overdue, up to a quarter are those that fell due just now, so that a backlog holds up
-- nothing that comes after it. Returns the members, the fresh ones first, and how many those are.
local function due_members(index, now, limit)
  local members = redis.call('ZRANGEBYSCORE', index, '-inf', whole(now), 'LIMIT', 0, limit)
  local last = #members == limit and redis.call('ZSCORE', index, members[limit])
  if not last or tonumber(last) >= now - FRESH then return members, 0 end
  local share = math.floor(limit / 4)
  local mixed = redis.call('ZRANGEBYSCORE', index, whole(now - FRESH), whole(now), 'LIMIT', 0, share)
  local fresh = #mixed
  for at = 1, limit - fresh do mixed[fresh + at] = members[at] end
  return mixed, fresh
end

-- Take the first `taken` members that due_members gave out of their index.
local function remove_taken(index, members, fresh, taken)
  if taken > fresh then redis.call('ZREMRANGEBYRANK', index, 0, taken - fresh - 1) end
  local first = math.min(taken, fresh)
  if first > 0 then redis.call('ZREM', index, unpack(members, 1, first)) end
end

-- Whether a scanner has to be woken for an entry due at `due`: it is earlier than the head. One token,
-- not one per entry: it wakes one scanner, and that one learns the head for itself.
local function needs_token(wake, index, due)
  local head = head_of(index)
  return (head < 0 or due < head) and redis.call('LLEN', wake) == 0
end
