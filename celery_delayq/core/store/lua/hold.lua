--[[ hold: words of workers about runs whose keys are held.

closed   2, see prelude/closed.lua
rows...     words     of each:
         id        the task's id
         key       the key
         delivery  the delivery that runs, as its message names it
         ms        the key is held for at least so long from now; 0: the run has ended, so it is free
         lease     1: its worker says so again before then. So the end may come earlier than the hand-over has set it, and a
                   key whose lease has run out is held anew; 0: neither

Returns  how many were heeded
Cost     O(log N) a word; the caller bounds them
Keeps    a key that another delivery holds; so a word may be late, or come twice
]]
allow_when_full(keys.holders)
local now, count = math.floor(clock_us() / 1000), 0

-- Whether an entry is being published by that very delivery: its run may end before the scanner knows of the publication.
local function is_leaving(id, delivery)
  local record = redis.call('HGET', keys.records, id)
  local header_end = header_end_of(record)
  return header_end and delivery_of(record, header_end) == delivery
    and redis.call('ZSCORE', keys.leased, member_of(record, header_end, id))
end

-- Until when a key is held, ms, as its hand-over has set it; nil if the store forgot.
local function end_of_hand_over(key)
  local stamp = find_tombstone(name_of_key(key)) or ''
  return tonumber(string.match(stamp, '^.%d%d%d%d%d%d%d%d%d%d%d%d%d(%d+)'))
end

for _, word in ipairs(words) do
  local holder, delivery, behind = holder_of(word.key)
  local ms, is_lease = tonumber(word.ms), word.lease == '1'
  if holder ~= word.id then
    -- Another one has the key.
  elseif delivery == word.delivery and (is_lease or is_key_held(word.key, now)) then
    local ends = tonumber(redis.call('ZSCORE', keys.held, word.key) or 0)
    count = count + 1
    if ms == 0 then
      free_key(word.key, behind)
    elseif now + ms > ends or is_lease and ends == end_of_hand_over(word.key) then
      redis.call('ZADD', keys.held, whole(now + ms), word.key)
    end
  elseif not delivery and ms == 0 and is_leaving(word.id, word.delivery) then
    count = count + 1
    free_key(word.key, behind)
  end
end
return count
