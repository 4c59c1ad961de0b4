--[[ free: free a unique key that an entry which has left still holds.

change   a call: see prelude/call.lua
text     key   the key
text     seen  the delivery that must hold it; or empty

Returns  the answer: done, and the id of the entry that held it | unchanged (its holder waits, or is another than `seen`) |
         in_flight (its holder is being published) | not_found (nothing holds it)
Cost     O(log N)
Keeps    an entry behind the holder: it gets the key, and waits
]]
return change(request, function(call)
  local name = name_of_key(key)
  if is_key_fenced(call, name) then return nil, 'stale' end

  local state, id, delivery = hold_on_key(key)
  if not state then return 'not_found' end
  if state == 'in_flight' then return state end
  if state == 'waits' or seen ~= '' and seen ~= delivery then return 'unchanged' end
  allow_when_full(keys.holders)
  redis.call('ZREM', keys.held, '') -- without the right to this, nothing is freed
  fence(call, name)
  return 'done' .. quoted(id), nil, function() free_key(key, (select(3, holder_of(key)))) end
end)
