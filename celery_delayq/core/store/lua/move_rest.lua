--[[ move_rest: read what a closed shard has beside its entries.

closed   9, see prelude/closed.lua
text     part    sizes | a list of the history | held, or the HASH to read; outbox_messages with its times
text     cursor  the end of the last slice; 0 for the start
number   count   about how many to read, 1..1000

reply    next, found of field value

Returns  the next cursor, or 0 at the end; for sizes, each place and `records`, and how many it has; how many leases
         still hold; and, as `left`, how many tombstones there are
Cost     O(M log N), M <= count
Keeps    changes nothing
]]
local HASH = {
  paused = keys.paused, tombstones = keys.tombstones, tombstones_old = keys.tombstones_old, arrived = keys.arrived,
  arrived_old = keys.arrived_old, outbox_messages = keys.outbox_messages, held = keys.holders,
  rules = keys.rules,
}
if part == 'sizes' then
  return {0, {
    'records', redis.call('HLEN', keys.records), 'due', redis.call('ZCARD', keys.due),
    'relay', redis.call('ZCARD', keys.relay), 'leased', redis.call('ZCARD', keys.leased),
    'refused', redis.call('ZCARD', keys.refused), 'parked', redis.call('ZCARD', keys.parked),
    'dead', redis.call('ZCARD', keys.dead), 'behind', redis.call('ZCARD', keys.behind),
    'left', redis.call('HLEN', keys.tombstones) + redis.call('HLEN', keys.tombstones_old),
    'lasting', redis.call('ZCOUNT', keys.leased, whole(math.floor(clock_us() / 1000)), '+inf'),
  }}
end

local LIST = {
  history = keys.history, history_changes = keys.history_changes, history_parts = keys.history_parts,
}
local found = {}
if LIST[part] then
  local events = redis.call('LRANGE', LIST[part], cursor, cursor + count - 1)
  for at, event in ipairs(events) do found[at * 2 - 1], found[at * 2] = '', event end
  return {#events == count and cursor + count or 0, found}
end
local slice = redis.call('HSCAN', HASH[part], cursor, 'COUNT', count)
found = slice[2]
if part == 'held' then -- keys whose holders have left; those of entries come with these
  local left = {}
  for at = 1, #found, 2 do
    local ends = redis.call('ZSCORE', keys.held, found[at])
    if ends then left[#left + 1], left[#left + 2] = found[at], ends .. ' ' .. found[at + 1] end
  end
  found = left
end
if part == 'outbox_messages' then
  for at = 1, #found, 2 do
    found[at + 1] = (redis.call('ZSCORE', keys.outbox, found[at]) or '0') .. ' ' .. found[at + 1]
  end
end
return {slice[1], found}
