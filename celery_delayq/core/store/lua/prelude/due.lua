--[[ Due entries, and scanners to wake for them. ]]
local FRESH = 1000 -- ms for which an entry that fell due counts as fresh at least, see due_members
local LAG = 20 -- ms: a full batch that is all due for longer has a backlog behind it
local LATER = 9999999999999 -- ms: a scanner with this promise wakes for messages only
local OVERDUE = 100 -- ms after which a scanner that should have woken is taken for dead

-- The index in which an entry waits for its due time.
local function index_of(record)
  return sub(record, 2, 2) == 'L' and keys.due or keys.relay
end

-- The first score of an index, or -1 if it is empty. (A score below 0 is another program's.)
local function head_of(index)
  local head = redis.call('ZRANGE', index, 0, 0, 'WITHSCORES')
  return head[2] and math.max(0, tonumber(head[2])) or -1
end

-- The earlier of two heads, or the only one.
local function earlier_head(one, other)
  if one < 0 or other < 0 then return math.max(one, other) end
  return math.min(one, other)
end

-- The next entries of an index: due members in due order, at most `limit`. If there is a backlog, up to a quarter are
-- fresh: they fell due since the caller's last step, or in the last second, and after the others. So neither a backlog,
-- however long a step takes, nor a burst on one millisecond holds up later entries. Return the members, fresh ones
-- first, and the number of those.
local function due_members(index, now, limit, last_ms)
  local members = redis.call('ZRANGEBYSCORE', index, '-inf', whole(now), 'LIMIT', 0, limit)
  local last = #members == limit and tonumber(redis.call('ZSCORE', index, members[limit]))
  if not last or last >= now - LAG then return members, 0 end
  local since = math.max(last + 1, math.min(now - FRESH, last_ms > 0 and last_ms or now))
  local share = math.floor(limit / 4)
  local mixed = redis.call('ZRANGEBYSCORE', index, whole(since), whole(now), 'LIMIT', 0, share)
  local fresh = #mixed
  for at = 1, limit - fresh do mixed[fresh + at] = members[at] end
  return mixed, fresh
end

-- Remove the first `taken` members of due_members from their index.
local function remove_taken(index, members, fresh, taken)
  if taken > fresh then redis.call('ZREMRANGEBYRANK', index, 0, taken - fresh - 1) end
  local first = math.min(taken, fresh)
  if first > 0 then redis.call('ZREM', index, unpack(members, 1, first)) end
end

-- A scanner's promise: to wake at `at`, and when a message comes. `by` is its name, or empty if all scanners were woken
-- and none has looked since. Or nil: there is no promise.
local function promise_in(text)
  local at, by = nil, nil
  if text then at, by = string.match(text, '^(%d+):(.*)$') end
  return at and {at = tonumber(at), by = by}
end

local function promise_of()
  return promise_in(redis.call('HGET', keys.meta, 'timer'))
end

-- Whether the scanner that promised is taken for dead: it should have woken, but did not.
local function is_overdue(promise, now)
  return promise.at < now - OVERDUE
end

-- Make sure that a scanner wakes at `due`. One that has promised it gets no message; one that gets a message has thereby
-- promised it, so of many calls only one sends a message. It cannot fail the call: the entries are written.
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

-- One scanner wakes for the next entry; if all did, a hundred scanners would make a hundred calls for each due time.
-- Another one takes over if that one would wake later, or is overdue. `heads`: of due, relay, leased, and of coming-back
-- entries. Return 1 if the caller wakes for it, which sleeps for asleep_ms at most, and will not look at `relay` for
-- relay_ms; or 0.
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
    -- It publishes now, for an unknown time; meanwhile another scanner gets the messages.
    by, at = stand_in(scanner, now) or scanner, LATER
  end
  redis.call('HSET', keys.meta, 'timer', whole(at) .. ':' .. by)
  return at < LATER and 1 or 0
end

-- Rare: most calls wake no scanner, and most steps send no heartbeat.

-- The rank in an index after a due time, as Redis prints it, and an insertion number. Members with the same due time are
-- in insertion order, so a binary search finds the place. (It compares numbers, as Lua's comparison of strings depends on
-- the locale.)
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

-- Wake one scanner; return whether it listens. Without the right to publish, scanners find new entries at the next look.
local function tell(scanner)
  local heard = redis.pcall('PUBLISH', keys.wake .. ':' .. scanner, '')
  return type(heard) == 'number' and heard > 0
end

local function tell_all()
  redis.pcall('PUBLISH', keys.wake, '')
end

-- Note a scanner's heartbeat, and forget scanners that were silent for an hour. No delivery depends on it.
local function note_heartbeat(scanner, now, since)
  redis.pcall('HSET', keys.heartbeats, scanner, whole(now) .. ':' .. FORMAT .. ':' .. whole(since))
  local silent = redis.call('ZRANGEBYSCORE', keys.scanners, '-inf', whole(now - 3600000), 'LIMIT', 0, 1000)
  if #silent == 0 then return end
  redis.call('ZREM', keys.scanners, unpack(silent))
  redis.pcall('HDEL', keys.heartbeats, unpack(silent))
end

-- The live scanners, at most a thousand: name, time of the last heartbeat, ms, the newest format that it reads, and
-- when it joined, ms, or -1. A heartbeat further ahead than it may be is from before the clock was set back, and does not
-- count.
local function alive_in(now)
  local rows = redis.call('ZRANGEBYSCORE', keys.scanners, whole(now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1000)
  local names, alive = {}, {}
  for at = 1, #rows, 2 do names[#names + 1] = rows[at] end
  if #names == 0 then return alive end
  for at, beat in ipairs(redis.call('HMGET', keys.heartbeats, unpack(names))) do
    local last = tonumber(rows[2 * at])
    local at_ms, reads, since = string.match(beat or '', '^(%d+):(.):?(%d*)$')
    local seen, count = tonumber(at_ms or '') or math.min(last, now), #alive
    if seen - now <= last - seen then
      alive[count + 1], alive[count + 2], alive[count + 3] = names[at], whole(seen), reads or FIRST
      alive[count + 4] = tonumber(since or '') or -1
    end
  end
  return alive
end

-- Another live scanner: of two, the one with the later heartbeat. Or nil.
local function stand_in(scanner, now)
  local rows = redis.call('ZREVRANGE', keys.scanners, 0, 1, 'WITHSCORES')
  for at = 1, #rows, 2 do
    if rows[at] ~= scanner and tonumber(rows[at + 1]) > now then return rows[at] end
  end
end
