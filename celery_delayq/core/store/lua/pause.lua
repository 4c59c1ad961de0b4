--[[ pause: park entries of a lane as they fall due, until it is resumed.

change   a call: see prelude/call.lua
text     lane       7 bytes, see prelude/entry.lua
text     called     the name of the queue or task; empty for the lane of all
text     late       1: the time parked counts as lateness; or 0

Returns  the answer: done
Cost     O(1), and O(lanes coming back)
Keeps    parked entries; one that came back but was not delivered is parked again by the next scanner
]]
return change(request, function(call)
  local fenced_as = name_of_lane(lane)
  if is_fenced(call, fenced_as) then return nil, 'stale' end

  local before = parse_pause(redis.call('HGET', keys.paused, lane))
  local lasts = before and before.state == 'p'
  if call.all_wait then redis.call('HSET', keys.meta, 'tidy', 'w') else make_untidy() end
  fence(call, fenced_as)
  redis.call('HSET', keys.paused, lane, format_pause({
    state = 'p', late = late, since = lasts and before.since or whole(call.now_us), rate = 0, next_us = 0, left = 0,
    at = 0, until_us = 0, last = 0, spans = before and spans_with(before, call.now_us) or '', name = called,
  }))
  note_returning(lane, false)
  return 'done'
end)
