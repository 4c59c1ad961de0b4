--[[ secret: return the random text with which the processes of a store sign.

text     fresh  random text: the secret, if there is none

reply    now, secret

Returns  now, us; and the secret, or '' if no process has joined
Cost     O(1)
Keeps    one secret for a name of the store: a store that was emptied or resharded has another name, and so another secret
]]
local known = redis.call('HMGET', keys.meta, 'store', 'secret')
if not known[1] then return {clock_us(), ''} end
local begin, secret = known[1] .. ' ', known[2] or ''
if string.sub(secret, 1, #begin) ~= begin then
  secret = begin .. fresh
  allow_when_full(keys.meta)
  redis.call('HSET', keys.meta, 'secret', secret)
end
return {clock_us(), string.sub(secret, #begin + 1)}
