--[[ arrive: a copy of a relayed task is at a worker; which copy of this hand-over was there first.

KEYS[1]  arrived      HASH  mark of a hand-over -> attempt that arrived first; since, last -> when, ms
KEYS[2]  arrived_old  HASH  the generation before

ARGV[1]  mark     16 bytes that name one hand-over of one task
ARGV[2]  attempt  which attempt at that hand-over the copy is, > 0
ARGV[3]  keep_ms  how old a generation gets, > 0; pauses do not count
ARGV[4]  most     marks of a generation at which it ends before that, > 0

Returns  the attempt that arrived first; the copy's own, where none did before
Cost     O(1)
Keeps    what arrived first of a hand-over stays so, through the next generation
]]
local mark, attempt = ARGV[1], ARGV[2]
local keep_ms, most = tonumber(ARGV[3]), tonumber(ARGV[4])

local PAUSE = 60000 -- ms without a mark that do not make a generation older

local first = redis.call('HGET', arrived, mark) or redis.call('HGET', arrived_old, mark)
if tonumber(first or '') then return tonumber(first) end

local now = math.floor(clock_us() / 1000)
local since, last = unpack(redis.call('HMGET', arrived, 'since', 'last'))
since, last = tonumber(since or ''), tonumber(last or '')
-- While the broker is down, or all workers are, nothing is forgotten.
if since and last and now - last > PAUSE then since = since + now - last end
-- A generation may also have begun while Redis's clock was far ahead; or its age is no number.
local is_over = since and not (math.abs(now - since) < keep_ms)
if is_over or redis.call('HLEN', arrived) - 2 >= most then
  -- Not left to RENAME, which would free a million fields there and then.
  redis.call('UNLINK', arrived_old)
  redis.call('RENAME', arrived, arrived_old)
  since = nil
end
redis.call('HSET', arrived, 'since', whole(since or now), 'last', whole(now), mark, attempt)
return tonumber(attempt)
