--[[ resume: let parked entries of a lane come back.

change   a call: see prelude/call.lua
text     lane       7 bytes, see prelude/entry.lua
number   rate       how many come back a second; 0: no limit

Returns  the answer: done; or unchanged, if it is not paused and nothing comes back
Cost     O(log N), and O(lanes coming back)
Keeps    entries in their places: hand_over lets them come back; the lane's memory covers those that no scanner has met
]]
return change(request, function(call)
  local fenced_as = name_of_lane(lane)
  if is_fenced(call, fenced_as) then return nil, 'stale' end

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
    make_untidy()
    redis.call('HSET', keys.paused, lane, format_pause(pause))
    note_returning(lane, true)
    wake_for(call.now, call.now, call.promise)
  elseif pause then
    note_returning(lane, false)
    redis.call('HDEL', keys.paused, lane)
  end
  return pause and 'done' or 'unchanged'
end)
