--[[ owed: cancelled tasks whose REVOKED is not known to be stored.

number   limit      most to take, 1..1000
number   max_bytes  stop after the task that reaches so many bytes, > 0
number   wait_ms    how long no other caller gets them, > 0

reply    of id how when message why

Returns  for each: how, c or u; when it was cancelled, us
Cost     O(log N + M log N), M <= limit
Keeps    the tasks returned, until `mark_stored`
]]
local now = math.floor(clock_us() / 1000)
local found, bytes = {}, 0
allow_when_full(keys.outbox_messages)
for _, id in ipairs(redis.call('ZRANGEBYSCORE', keys.outbox, '-inf', whole(now), 'LIMIT', 0, limit)) do
  if bytes >= max_bytes then break end
  local when, message, how, why = parse_owed(redis.call('HGET', keys.outbox_messages, id))
  if when then
    bytes = bytes + #message
    local at = #found
    found[at + 1], found[at + 2], found[at + 3], found[at + 4], found[at + 5] = id, how, when, message, why
    redis.call('ZADD', keys.outbox, whole(now + wait_ms), id)
  else
    redis.call('ZREM', keys.outbox, id)
  end
end
return found
