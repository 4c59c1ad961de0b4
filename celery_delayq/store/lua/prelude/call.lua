--[[ A changing call: it takes effect once and in order, however late, doubled or repeated its requests come.

Each call is an operation. All of its requests carry its name, the end of the call (`deadline`) and when
the request was made (`issued`), both in us by Redis's clock as the caller knows it, which is never ahead.

1. A request that comes after its deadline is refused: its caller has gone on.
2. What a call was answered is remembered by operation; a repetition is told the same.
3. A request made before the last change of what it is about is refused as stale: its caller, if it still
   waits, makes it anew; one that was interrupted has gone on, and must not undo what came later. The last
   change stands in the record, or, where it left none, as a fence under the id.

No request runs later than `timeout` after it was made, the greatest that any process allows a call. So
answers and fences are kept for that long, in two generations that are turned by age. A call that began in this
generation finds nothing of its own in the older one, and does not read it.

A script whose header says `change` is `return change(request, function(call) ... end)`, where the function has the
script's own steps alone. In `request` there is

operation  names the call
issued     when this request was made, us by Redis's clock
deadline   when the call ends, us by Redis's clock
began      when the call's first request was made; each repetition says the same, also after Redis's clock was set

The script replies {now in us, verdict, ...}. The verdict is

answer     then the answer comes, and what the script tells beside it
join       the caller has to join, and ask again
late       the call is over
stale      something newer has overtaken this request

calls  ANSWER and an operation -> its answer
       an id, name_of_key, or name_of_lane -> its fence: when something was done there last, us in 7 bytes
]]
local ANSWER = '\253' -- no id begins with this byte, and neither does what stands for a key or a lane

-- Whether an answer says that there is no entry.
local function is_gone(answer)
  return answer == 'not_found' or answer == 'handed_over'
end

-- Whether the request was made before a change, in us. A change that is still to come was made before Redis's
-- clock was set back, and tells nothing.
local function is_overtaken(call, changed)
  return call.issued < changed and changed <= call.now_us
end

-- The fences of an id, a key or a lane: of this generation, and of the one before; false, where there is none.
local function fences_of(call, name)
  local known = call.fences[name]
  if known then return known[1], known[2] end
  return redis.call('HGET', keys.calls, name), not call.is_young and redis.call('HGET', keys.calls_old, name)
end

-- Whether what left, or was looked for in vain, under this id did so after the request was made.
local function is_fenced(call, id)
  local new, old = fences_of(call, id)
  local since = new or old
  return since and is_overtaken(call, number_in(since, 1, 7))
end

-- The same of a key, by its name_of_key. The later of its two fences may be the older generation's: what left
-- may have been changed before something was done under its key.
local function is_key_fenced(call, name)
  for _, since in ipairs({fences_of(call, name)}) do
    if since and is_overtaken(call, number_in(since, 1, 7)) then return true end
  end
  return false
end

-- Refuse what was asked for this id before now.
local function fence(call, id)
  redis.call('HSET', keys.calls, id, seven_bytes(call.now_us))
end

-- Make what is known of calls the older generation of it. A caller who lacks the right is answered all the
-- same; the turn of another caller will come.
local function make_older()
  redis.pcall('UNLINK', keys.calls_old)
  if redis.call('HLEN', keys.calls) > 0 then redis.pcall('RENAME', keys.calls, keys.calls_old) end
end

-- Whether a call begins another generation.
local function turns(call)
  local age = call.turned and call.now - call.turned
  return not age or age < 0 or age > call.timeout
end

-- Forget the older generation, and begin another. The time first: should Redis stop the script here, they
-- are kept for longer.
local function turn(call)
  if not turns(call) then return end
  redis.call('HSET', keys.meta, 'turned', whole(call.now))
  -- Its clock was set back, or it has none: what is kept is kept for another turn.
  if call.turned and call.turned <= call.now then make_older() end
end

-- What the call was answered before, if it was. The fences of `names` are read along with it.
local function answer_of(call, names)
  local field = ANSWER .. call.operation
  local new = redis.call('HMGET', keys.calls, field, unpack(names))
  local old = call.is_young and {} or redis.call('HMGET', keys.calls_old, field, unpack(names))
  for at, name in ipairs(names) do call.fences[name] = {new[at + 1], old[at + 1]} end
  return new[1] or old[1]
end

-- Make a call: what each of them does before its own steps, and after them.
-- `steps`, given the call, returns the answer, what only the first request is told beside it, and what is to be done
-- once the answer is stored; or nil, and the verdict by which the call is refused.
-- `names`: what is_fenced and is_key_fenced will be asked for, if that is known before.
-- `told_again`: gives what a repetition is told beside the answer, if there is such a thing.
local function change(call, steps, names, told_again)
  local now_us = clock_us()
  local meta = redis.call('HMGET', keys.meta, 'timeout', 'turned', 'history', 'seq', 'timer', 'tidy')
  local timeout, turned, began = timeout_of(meta[1]), tonumber(meta[2] or ''), call.began
  -- Unknown to this store, or of a time before its clock was set back.
  if not timeout or call.deadline > now_us + timeout * 1000 or call.issued > now_us + AHEAD then
    return {now_us, 'join'}
  end
  if call.deadline < now_us then return {now_us, 'late'} end

  call.now_us, call.now, call.timeout, call.turned = now_us, math.floor(now_us / 1000), timeout, turned
  call.is_young = turned and (turned + 1) * 1000 <= began and began <= now_us
  call.has_numbers, call.promise = meta[4], promise_in(meta[5])
  call.all_wait = string.find(meta[6] or '', 'w') ~= nil
  call.fences, call.fenced = {}, {} -- what is known of these; name, when, ... of those that come with the answer
  local known = answer_of(call, names or {})
  if known then return {now_us, 'answer', known, told_again and told_again(known)} end

  past.begin(meta[3])
  local answer, told, finish = steps(call)
  if not answer then return {now_us, told} end
  turn(call)
  redis.call('HSET', keys.calls, ANSWER .. call.operation, answer, unpack(call.fenced))
  if finish then finish() end
  past.write()
  return {now_us, 'answer', answer, told}
end

-- A part of a word of an answer, behind others: answers about many have a word for each, blanks between.
local function quoted(text)
  return ':' .. string.gsub(text, '[%c%s:%%]', function(one) return string.format('%%%02X', string.byte(one)) end)
end
