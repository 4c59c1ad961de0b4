--[[ A changing call: it takes effect once and in order, however late, duplicated or repeated its requests are.

Each call is an operation. All of its requests have its name, the end of the call (`deadline`) and the time of the
request (`issued`), both in us by Redis's clock as the caller knows it: perhaps behind, never ahead.

1. A request that comes after its deadline is refused: its caller has moved on. If Redis's clock was set back by less
   than the request is late, it is in time by that clock: a script cannot tell, as Redis has no other clock.
2. The answer to a call is kept by operation; a repetition gets the same one.
3. A request made before the last change of its subject is refused as stale. If its caller still waits, it makes a new
   request; if it was interrupted, it has moved on, and must not undo later changes. The record has the time of the last
   change; if there is no record, a fence under the id has it.

No request runs later than `timeout` after it was made: the longest that any process allows a call. So answers and
fences are kept that long, in two generations that are turned by age. A call that began in this generation has nothing
in the older one, and does not read it.

A script with `change` in its header is `return change(request, function(call) ... end)`; the function has only the
script's own steps. `request` has

operation  the call's name, 12 random bytes; and who makes it, if somebody was named
issued     when this request was made, us by Redis's clock
deadline   when the call ends, us by Redis's clock
began      when the call's first request was made; repetitions keep it, even if Redis's clock was set meanwhile
store      the store's name, as the caller has joined it: if that was emptied, processes may have agreed on other settings

The script replies {now in us, verdict, ...}. The verdict is

answer     the answer follows, and further parts of the reply
join       the caller must join, and repeat the request
late       the call is over
stale      a newer change has overtaken this request

calls  ANSWER and an operation -> its answer
       an id, name_of_key, or name_of_lane -> its fence: the time of its last change, us in 7 bytes
]]
local ANSWER = '\253' -- no id begins with this byte, nor does the name of a key or a lane

-- Whether an answer says that there is no entry.
local function is_gone(answer)
  return answer == 'not_found' or answer == 'handed_over'
end

-- Whether the request was made before a change, in us. A change in the future is from before Redis's clock was set
-- back, and proves nothing.
local function is_overtaken(call, changed)
  return call.issued < changed and changed <= call.now_us
end

-- The fences of an id, a key or a lane: of this generation, and of the one before; false if there is none.
local function fences_of(call, name)
  local known = call.fences[name]
  if known then return known[1], known[2] end
  return redis.call('HGET', keys.calls, name), not call.is_young and redis.call('HGET', keys.calls_old, name)
end

-- Whether an entry under this id left, or was found missing, after the request was made.
local function is_fenced(call, id)
  local new, old = fences_of(call, id)
  local since = new or old
  return since and is_overtaken(call, number_in(since, 1, 7))
end

-- Whether a call begins another generation.
local function turns(call)
  local age = call.turned and call.now - call.turned
  return not age or age < 0 or age > call.timeout
end

-- Return the answer that the call already got, if any; read the fences of `names` along with it.
local function answer_of(call, names)
  local field = ANSWER .. call.operation
  local new = redis.call('HMGET', keys.calls, field, unpack(names))
  local old = call.is_young and {} or redis.call('HMGET', keys.calls_old, field, unpack(names))
  for at, name in ipairs(names) do call.fences[name] = {new[at + 1], old[at + 1]} end
  return new[1] or old[1]
end

-- Make a call: the steps common to all, around its own ones.
-- `steps` gets the call and returns the answer, the rest of the reply to the first request, and a function to run once
-- the answer is stored; or nil, and the verdict that refuses the call.
-- `names`: arguments for is_fenced and is_key_fenced, as far as they are known before.
-- `told_again`: makes the rest of the reply to a repetition, if there is one.
local function change(call, steps, names, told_again)
  local now_us = clock_us()
  local meta = redis.call('HMGET', keys.meta, 'timeout', 'turned', 'history', 'seq', 'timer', 'tidy', 'closed', 'store')
  local refusal = meta[7] and refusal_of(1, meta[7])
  if refusal then return refusal end
  local timeout, turned, began = timeout_of(meta[1]), tonumber(meta[2] or ''), call.began
  -- Unknown to this store, or from before its clock was set back.
  if not timeout or meta[8] ~= call.store or call.deadline > now_us + timeout * 1000 or call.issued > now_us + AHEAD then
    return {now_us, 'join'}
  end
  if call.deadline < now_us then return {now_us, 'late'} end

  call.now_us, call.now, call.timeout, call.turned = now_us, math.floor(now_us / 1000), timeout, turned
  call.is_young = turned and (turned + 1) * 1000 <= began and began <= now_us
  call.has_numbers, call.promise = meta[4], promise_in(meta[5])
  call.all_wait = string.find(meta[6] or '', 'w') ~= nil
  call.fences, call.fenced = {}, {} -- fences read before; name, when, ... of those written along with the answer
  local known = answer_of(call, names or {})
  if known then return {now_us, 'answer', known, told_again and told_again(known)} end

  begin_history(meta[3])
  local answer, told, finish = steps(call)
  if not answer then return {now_us, told} end
  if turns(call) then turn(call) end
  redis.call('HSET', keys.calls, ANSWER .. call.operation, answer, unpack(call.fenced))
  if finish then finish() end
  if past.kept then write_calls_history(call.operation) end
  return {now_us, 'answer', answer, told}
end

-- Rare: generations seldom turn, and most calls name a task that is there by its id.

-- The same for a key, by its name_of_key. The later of its two fences may be in the older generation: an entry that left
-- may have been changed before another change under its key.
local function is_key_fenced(call, name)
  for _, since in ipairs({fences_of(call, name)}) do
    if since and is_overtaken(call, number_in(since, 1, 7)) then return true end
  end
  return false
end

-- Refuse requests for this id that were made before now.
local function fence(call, id)
  redis.call('HSET', keys.calls, id, seven_bytes(call.now_us))
end

-- Begin another generation, and forget the older one. The time comes first: if Redis stops the script here, they are kept
-- longer.
local function turn(call)
  redis.call('HSET', keys.meta, 'turned', whole(call.now))
  -- If the clock was set back, or there is no time, keep both until the next turn. Without the right to do this the
  -- caller still gets its answer; another caller will turn the generation.
  if call.turned and call.turned <= call.now then pcall(make_older, keys.calls, keys.calls_old) end
end

-- A further part of a word in an answer: answers about many have a word for each, with blanks between.
local function quoted(text)
  return ':' .. string.gsub(text, '[%c%s:%%]', function(one) return string.format('%%%02X', string.byte(one)) end)
end
