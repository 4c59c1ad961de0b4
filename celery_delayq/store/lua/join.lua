--[[ join: a process makes itself known to a store, and learns what time it is there.

KEYS[1]  meta      HASH  schema, shards, broker, hosts, timeout: what the processes of a store agree on; store: its name
KEYS[2]  scanners  ZSET  scanner -> ms until which its last heartbeat counts

ARGV[1]  schema   version of the layout that the process knows
ARGV[2]  shards   how many the process spreads its entries over, > 0
ARGV[3]  timeout  for how many ms its calls may last, > 0
ARGV[4]  broker   what broker it has: transport, virtual host, prefix of keys
ARGV[5]  hosts    where that is
ARGV[6]  scanner  1: it hands over, through that broker; or 0
ARGV[7]  store    the store's name from now on, if it has none: no other store has it

Returns  {now in us, schema, shards, broker, hosts, store}, as the store has them from now on
Cost     O(log S), S scanners
Keeps    what is agreed on; the broker is that of the scanners, and another one's only when none is alive
]]
local schema, shards, timeout = ARGV[1], ARGV[2], tonumber(ARGV[3])
local broker, hosts, scanner, store = ARGV[4], ARGV[5], ARGV[6] == '1', ARGV[7]

local now_us = clock_us()
local known = redis.call('HMGET', meta, 'schema', 'shards', 'timeout', 'broker', 'hosts', 'store')
local is_new = not known[1] or not known[2]
local is_fit = is_new or (known[1] == schema and known[2] == shards)
local theirs = known[4]
if is_fit and scanner and known[4] ~= broker then
  local alive = redis.call('ZCOUNT', scanners, whole(math.floor(now_us / 1000)), '+inf')
  if not theirs or alive == 0 then theirs = false end
end

local changes = {}
local function set(name, value)
  changes[#changes + 1], changes[#changes + 2] = name, value
end
if is_new then
  set('schema', schema)
  set('shards', shards)
end
if is_fit and not known[6] then set('store', store) end
if is_fit and (tonumber(known[3]) or 0) < timeout then set('timeout', whole(timeout)) end
if is_fit and scanner and not theirs then
  set('broker', broker)
  set('hosts', hosts)
  known[4], known[5] = broker, hosts
end
if #changes > 0 then
  allow_when_full(meta)
  redis.call('HSET', meta, unpack(changes))
end
return {
  now_us, is_new and schema or known[1], is_new and shards or known[2], known[4] or '', known[5] or '',
  known[6] or store,
}
