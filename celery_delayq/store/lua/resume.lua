--[[ resume: what fell due in a lane while it was paused comes back.

KEYS[1]   due          ZSET     member -> due time, ms
KEYS[2]   relay        ZSET     member -> due time, ms
KEYS[3]   leased       ZSET     member -> lease deadline, ms
KEYS[4]   refused      ZSET     member -> next try, ms
KEYS[5]   parked       ZSET     lane, due time, kind, member -> 0
KEYS[6]   paused       HASH     lane -> what is paused, and how it comes back
KEYS[7]   wake         CHANNEL  where scanners are told to look
KEYS[8]   timer        STRING   which scanner is up next, and when
KEYS[9]   answers      HASH     operation -> answer
KEYS[10]  answers_old  HASH     the same, older
KEYS[11]  fences       HASH     name of the lane -> when it was paused or resumed last, us
KEYS[12]  fences_old   HASH     the same, older
KEYS[13]  meta         HASH     seq -> last insertion number; timeout and turned, see prelude/call.lua

ARGV[1]  operation  names the call
ARGV[2]  issued     when this request was made, us by Redis's clock
ARGV[3]  deadline   when the call ends, us by Redis's clock
ARGV[4]  lane       7 bytes, see prelude/entry.lua
ARGV[5]  rate       how many come back a second; 0: as fast as it goes

Returns  {now in us, 'join' | 'late' | 'stale'}: refused, see prelude/call.lua; or {now in us, 'answer',
         'done' | 'unchanged', where it is not paused, and nothing of it comes back}
Cost     O(log N), and O(the lanes that come back)
Keeps    the entries where they are: hand_over lets them come back; what no scanner has met is left to the lane's memory
]]
local operation, issued, deadline = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local lane, rate = ARGV[4], tonumber(ARGV[5])

local call, ended = begin_call(operation, issued, deadline, answers, answers_old, meta)
if not call then return ended end
local fenced_as = name_of_lane(lane)
if is_fenced(call, fenced_as, issued, fences, fences_old) then return stale(call) end

local pause = parse_pause(redis.call('HGET', paused, lane))
local has_parked = #parked_in(parked, lane, 1) > 0
if has_parked and not pause then pause = unknown_pause(call.now_us) end
if pause and pause.state == 'p' then
  pause.state, pause.until_us = 'b', call.now_us
  pause.last = last_number(redis.call('HGET', meta, 'seq')) or NUMBERS
end
local has_more = pause and is_awaited(lane, pause, {}, keys)
local promise = promise_of(timer)
allow_when_full(fences)
fence(call, fenced_as, fences)
if has_more then
  pause.rate, pause.next_us, pause.left = rate, call.now_us, 0
  redis.call('HSET', paused, lane, format_pause(pause))
  local now = math.floor(call.now_us / 1000)
  note_returning(paused, lane, true)
  wake_for(now, now, wake, timer, promise)
elseif pause then
  note_returning(paused, lane, false)
  redis.call('HDEL', paused, lane)
end
return end_call(call, pause and 'done' or 'unchanged', answers, answers_old, fences, fences_old, meta)
