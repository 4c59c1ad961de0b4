--[[ What is due, and who is to wake for it. ]]
local FRESH = 1000 -- ms for which what fell due counts as fresh at least, see due_members
local LATER = 9999999999999 -- ms: who promises this is up for what it is told of, and for nothing else
local OVERDUE = 100 -- ms after which a scanner that was to be up is taken for dead

-- The first score of an index, or -1: there is none. (One below 0 is somebody else's.)
local function head_of(index)
  local head = redis.call('ZRANGE', index, 0, 0, 'WITHSCORES')
  return head[2] and math.max(0, tonumber(head[2])) or -1
end

-- The rank in an index of what comes behind a due time, as Redis prints it, and an insertion number. Among equal due
-- times the members stand in insertion order: halve until the place is found. (Lua's own comparison of strings follows
-- the locale, so the numbers are compared.)
local function rank_behind(index, after, order)
  local low = redis.call('ZCOUNT', index, '-inf', '(' .. after)
  local high = redis.call('ZCOUNT', index, '-inf', after)
  while low < high do
    local middle = math.floor((low + high) / 2)
    local number = number_of(redis.call('ZRANGE', index, middle, middle)[1])
    if number <= order then low = middle + 1 else high = middle end
  end
  return low
end

-- The earlier of two heads, or the one that there is.
local function earlier_head(one, other)
  if one < 0 or other < 0 then return math.max(one, other) end
  return math.min(one, other)
end

-- What to take next of an index: members that are due, in due order, at most `limit`. If more than
-- that is overdue, up to a quarter are those that fell due since the caller's last step, or in the last
-- second: so a backlog holds up nothing that comes after it, however long a step takes. Returns the
-- members, the fresh ones first, and how many those are.
local function due_members(index, now, limit, _, last_ms)
  local since = math.min(now - FRESH, last_ms > 0 and last_ms or now)
  local members = redis.call('ZRANGEBYSCORE', index, '-inf', whole(now), 'LIMIT', 0, limit)
  local last = #members == limit and redis.call('ZSCORE', index, members[limit])
  if not last or tonumber(last) >= since then return members, 0 end
  local share = math.floor(limit / 4)
  local mixed = redis.call('ZRANGEBYSCORE', index, whole(since), whole(now), 'LIMIT', 0, share)
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

-- What a scanner has promised: to be up at `at`, and for whatever it is told of. `by` is its name, or
-- empty where all were told, and none has looked since. Or nil: nobody has promised anything.
local function promise_in(text)
  local at, by = string.match(text or '', '^(%d+):(.*)$')
  return at and {at = tonumber(at), by = by}
end

local function promise_of()
  return promise_in(redis.call('HGET', keys.meta, 'timer'))
end

-- Whether the scanner that promised is taken for dead: it should have been up, and is not.
local function is_overdue(promise, now)
  return promise.at < now - OVERDUE
end

-- Tell one scanner that there is something to look at; whether it listens. Where publishing is not
-- allowed, scanners find it when they look by themselves.
local function tell(scanner)
  local heard = redis.pcall('PUBLISH', keys.wake .. ':' .. scanner, '')
  return type(heard) == 'number' and heard > 0
end

local function tell_all()
  redis.pcall('PUBLISH', keys.wake, '')
end

-- See to it that a scanner is up at `due`, when something falls due: nobody is told who has promised that,
-- and whoever is told is taken at his word, so that of many calls one tells. It can fail no more: what it
-- is for is written.
local function wake_for(due, now, promise)
  local kept = promise and not is_overdue(promise, now)
  due = math.max(due, now)
  if kept and promise.at <= due then return end
  local by = kept and promise.by or ''
  if by == '' or not tell(by) then
    tell_all()
    by = ''
  end
  redis.pcall('HSET', keys.meta, 'timer', whole(due) .. ':' .. by)
end

-- Note when a scanner gave its heartbeat, and forget those that have been silent for an hour. Nothing that has to go
-- depends on it.
local function note_heartbeat(scanner, now)
  redis.pcall('HSET', keys.heartbeats, scanner, whole(now))
  local silent = redis.call('ZRANGEBYSCORE', keys.scanners, '-inf', whole(now - 3600000), 'LIMIT', 0, 1000)
  if #silent == 0 then return end
  redis.call('ZREM', keys.scanners, unpack(silent))
  redis.pcall('HDEL', keys.heartbeats, unpack(silent))
end

-- The scanners that are alive, at most a thousand: each one's name, and when it gave its last heartbeat, ms. One that
-- is further ahead than it counts was given before the clock was set back, and tells nothing.
local function alive_in(now)
  local rows = redis.call('ZRANGEBYSCORE', keys.scanners, whole(now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1000)
  local names, alive = {}, {}
  for at = 1, #rows, 2 do names[#names + 1] = rows[at] end
  if #names == 0 then return alive end
  for at, beat in ipairs(redis.call('HMGET', keys.heartbeats, unpack(names))) do
    local last = tonumber(rows[2 * at])
    local seen = tonumber(beat or '') or math.min(last, now)
    if seen - now <= last - seen then alive[#alive + 1], alive[#alive + 2] = names[at], whole(seen) end
  end
  return alive
end

-- Another scanner that is alive: of two, the one that was the last to say so. Or nil.
local function stand_in(scanner, now)
  local rows = redis.call('ZREVRANGE', keys.scanners, 0, 1, 'WITHSCORES')
  for at = 1, #rows, 2 do
    if rows[at] ~= scanner and tonumber(rows[at + 1]) > now then return rows[at] end
  end
end

-- One scanner is up for what comes next; were it all of them, a hundred scanners would call a hundred times for each
-- due time. Another takes its place where that one was to be up later, or is overdue. `heads`: of due, relay, leased,
-- and of what comes back. Returns 1 where it is the caller, which sleeps for asleep_ms at most, and will not look
-- at `relay` for relay_ms; or 0.
local function promise_next(heads, relay_ms, asleep_ms, scanner, now)
  local waits, next_up = {0, relay_ms, 0, 0}, math.huge
  for at, head in ipairs(heads) do
    if head >= 0 then next_up = math.min(next_up, math.max(head, now + waits[at])) end
  end
  local promise = promise_of()
  local mine = not promise or promise.by == scanner or promise.by == ''
  if not mine and promise.at <= next_up and not is_overdue(promise, now) then return 0 end
  local by, at = scanner, math.min(next_up, now + asleep_ms)
  if heads[2] >= 0 and heads[2] <= now and relay_ms == 0 then
    -- It goes to publish now, and for how long is not known; what comes meanwhile, another is told.
    by, at = stand_in(scanner, now) or scanner, LATER
  end
  redis.call('HSET', keys.meta, 'timer', whole(at) .. ':' .. by)
  return at < LATER and 1 or 0
end
