--[[ resume: what fell due in a lane while it was paused comes back.

change   begins with what every call does: see prelude/call.lua
text     lane       7 bytes, see prelude/entry.lua
number   rate       how many come back a second; 0: as fast as it goes

Returns  {now in us, 'join' | 'late' | 'stale'}: refused, see prelude/call.lua; or {now in us, 'answer',
         'done' | 'unchanged', where it is not paused, and nothing of it comes back}
Cost     O(log N), and O(the lanes that come back)
Keeps    the entries where they are: hand_over lets them come back; what no scanner has met is left to the lane's memory
]]
local call, ended = begin_call(operation, issued, deadline, began)
if not call then return ended end
local fenced_as = name_of_lane(lane)
if is_fenced(call, fenced_as, issued) then return stale(call) end

local pause = parse_pause(redis.call('HGET', keys.paused, lane))
local has_parked = #parked_in(lane, 1) > 0
if has_parked and not pause then pause = unknown_pause(call.now_us) end
if pause and pause.state == 'p' then
  pause.state, pause.until_us = 'b', call.now_us
  pause.last = last_number(redis.call('HGET', keys.meta, 'seq')) or NUMBERS
end
local has_more = pause and is_awaited(lane, pause, {})
allow_when_full(keys.calls)
fence(call, fenced_as)
if has_more then
  pause.rate, pause.next_us, pause.left = rate, call.now_us, 0
  redis.call('HSET', keys.paused, lane, format_pause(pause))
  local now = math.floor(call.now_us / 1000)
  note_returning(lane, true)
  wake_for(now, now, call.promise)
elseif pause then
  note_returning(lane, false)
  redis.call('HDEL', keys.paused, lane)
end
return end_call(call, pause and 'done' or 'unchanged')
