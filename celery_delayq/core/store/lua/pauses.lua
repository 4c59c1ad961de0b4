--[[ pauses: the lanes that are paused or coming back.

text     cursor     the end of the last slice; 0 for the start
text     count      about how many to look at, 1..1000
number   most       look at no more overdue records than this, in each index, > 0
number   max_bytes  nor at more than so many bytes of them, in each index, > 0

reply    cursor, cut, lanes of lane name is_back since is_late rate parked oldest

Returns  the next cursor, or 0 at the end; how many due entries were not looked at; for each lane 1 if it comes back,
         when it was paused, us, 1 if that counts as lateness, how many come back a second, as text, how many fell due
         and are here: including those that no scanner has met yet, if they are among the first `most` of an index; and
         the first due time of these, ms or -1
Cost     O(count * log N), and O(`most`) during a pause
Keeps    changes nothing
]]
local lanes, unmet, oldest, cut = new_lanes(clock_us()), {}, {}, 0
if lanes.any then
  for _, index in ipairs({keys.due, keys.relay, keys.refused}) do
    local last = index == keys.refused and '+inf' or whole(lanes.now)
    local looked = look_through(index, last, most, max_bytes, function(record, header_end)
      local lane = header_end and lane_for(pauses_of(lanes, record, header_end), record, header_end)
      if lane then
        unmet[lane] = (unmet[lane] or 0) + 1
        oldest[lane] = earlier_head(oldest[lane] or -1, due_of(record, header_end))
      end
    end)
    cut = cut + redis.call('ZCOUNT', index, '-inf', last) - looked
  end
end

local slice = redis.call('HSCAN', keys.paused, cursor, 'COUNT', count)
local found = {}
for at = 1, #slice[2], 2 do
  local lane, pause = slice[2][at], parse_pause(slice[2][at + 1])
  if pause then
    local last, first = #found, parked_in(lane, 1)[1]
    found[last + 1], found[last + 2], found[last + 3] = lane, pause.name, pause.state == 'b' and 1 or 0
    found[last + 4], found[last + 5] = pause.since, tonumber(pause.late)
    found[last + 6] = string.format('%.17f', pause.rate)
    found[last + 7] = count_parked(lane) + (unmet[lane] or 0)
    found[last + 8] = earlier_head(first and parked_due(first) or -1, oldest[lane] or -1)
  end
end
return {slice[1], cut, found}
