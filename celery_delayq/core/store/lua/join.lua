--[[ join: register a process with a store, and tell it the time there.

closed   9, see prelude/closed.lua
text     schema   version of the layout that the process knows
text     shards   over how many the process spreads its entries, > 0
number   timeout  how many ms its calls may last, > 0
text     broker   its broker: transport, virtual host, prefix of keys
text     hosts    the broker's hosts
flag     scanner  1: it delivers through that broker; or 0
text     kept     the setting of the history for `meta`: see prelude/history.lua; empty: no history
text     remember how long, and how many, tombstones are kept, for `meta`: see prelude/left.lua
text     store    random text: the value of `store`, if it has none
text     app      name of the process's app; empty: none of its own

reply    now, silent, began, schema, shards, broker, hosts, store, app, format

Returns  now, us; for how many ms no scanner has been alive: 0 if one is, -1 if none is known; when the shard was joined
         first, ms, or -1 if that is not known, as of one from before this was noted; and as the store has them from now
         on, the last being the newest format that its records and rules may have. If this scanner just changed hosts
         while others are alive, hosts as before: that is worth a warning; empty if no scanner has said any
Cost     O(log S), S scanners; if the history becomes shorter, as much more
Keeps    the settings in common. The broker is that of the first process that joins. A process with another one changes
         nothing, unless the only shard has no entry and no scanner is alive: then the broker is its own, and the store
         gets another name, so that processes which joined before join again. The app is the scanners', and changes only
         if none is alive. Hosts are the last joining scanner's, as a broker may move while scanners are replaced one by
         one; the settings of the history and of tombstones are the last joining process's
]]
local now_us = clock_us()
local known = redis.call('HMGET', keys.meta,
  'schema', 'shards', 'timeout', 'broker', 'hosts', 'store', 'history', 'app', 'remember', 'format',
  'began')
local is_new = not known[1] or not known[2]
local is_fit = is_new or (known[1] == schema and known[2] == shards)
local theirs, their_app = known[4], known[8]
local is_other = theirs and theirs ~= broker
local is_other_app = scanner and app ~= '' and their_app ~= app
local is_elsewhere = scanner and theirs == broker and known[5] ~= hosts
local nobody = (is_other or is_other_app or is_elsewhere)
  and redis.call('ZCOUNT', keys.scanners, whole(math.floor(now_us / 1000)), '+inf') == 0
if is_fit and is_other then
  -- Of several shards, one may be empty while another one is not.
  local is_free = nobody and shards == '1' and redis.call('HLEN', keys.records) == 0
  if is_free then theirs, known[6] = false, false else is_fit = false end
end

local changes = {}
local function set(name, value)
  changes[#changes + 1], changes[#changes + 2] = name, value
end
if is_new then
  set('schema', schema)
  set('shards', shards)
  if not known[10] then set('format', FORMAT) end
  -- A resharding brings it along: that shard is as old as the ones before.
  if not known[11] then
    known[11] = whole(math.floor(now_us / 1000))
    set('began', known[11])
  end
end
if is_fit and (timeout_of(known[3]) or 0) < timeout then set('timeout', whole(timeout)) end
if is_fit and not theirs then
  known[4], known[5] = broker, scanner and hosts or ''
  set('broker', broker)
  set('hosts', known[5])
elseif is_fit and is_elsewhere then
  set('hosts', hosts)
  if nobody then known[5] = hosts end
end
if is_fit and is_other_app and (nobody or not their_app) then
  set('app', app)
  known[8] = app
end
if is_fit and not known[6] then
  set('store', store)
  known[6] = store
end
if is_fit and known[9] ~= remember then set('remember', remember) end
local is_other_history = is_fit and (known[7] or '') ~= kept
if is_other_history and kept ~= '' then set('history', kept) end
if #changes > 0 then
  allow_when_full(keys.meta)
  redis.call('HSET', keys.meta, unpack(changes))
end
if is_other_history then
  local length = string.match(kept, '^%d+')
  if not length then redis.call('HDEL', keys.meta, 'history') end
  -- If this is not allowed, or the key is another program's, the list stays as it is.
  for _, key in ipairs({keys.history, keys.history_changes, keys.history_parts}) do
    redis.pcall('LTRIM', key, length and 0 or 1, length and length - 1 or 0)
  end
end
local last = redis.call('ZREVRANGE', keys.scanners, 0, 0, 'WITHSCORES')[2]
local silent = last and math.max(0, math.floor(now_us / 1000) - last) or -1
return {
  now_us, silent, tonumber(known[11] or '') or -1, is_new and schema or known[1], is_new and shards or known[2],
  known[4] or '', known[5] or '', known[6] or '', known[8] or '', known[10] or is_new and FORMAT or FIRST,
}
