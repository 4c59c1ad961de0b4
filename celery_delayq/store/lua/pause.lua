--[[ pause: what falls due in a lane is parked, until that is resumed.

change   a call: see prelude/call.lua
text     lane       7 bytes, see prelude/entry.lua
text     called     the name of the queue or task; empty for the lane of all
text     late       1: what is parked counts as late for that time; or 0

Returns  the answer: done
Cost     O(1), and O(the lanes that come back)
Keeps    what is parked there; what came back meanwhile, and has not left, is parked again when it is met
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
