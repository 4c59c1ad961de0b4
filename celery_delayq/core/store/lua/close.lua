--[[ close: close a shard that is being resharded, one level further; empty it, or open it.

closed   9, see prelude/closed.lua
number   level   1, 2, 3: see prelude/closed.lua; 4: empty it, to be filled; 5: empty it, as its entries are elsewhere;
                 0: open it
text     ours    of how many shards it is one
text     theirs  the other number of shards
text     run     the name of the resharding

Returns  1: it is so, and was written, if only once more; or 0: it cannot become so from here, or this request is late
Cost     O(1); Redis frees the memory aside
Keeps    the settings in common; a shard that is in use is not emptied
]]
local SETTINGS = {
  schema = true, shards = true, timeout = true, store = true, history = true, app = true, remember = true,
  reshard = true, closed = true, ended = true,
  -- The meeting place has the store's. A shard may be used for the second time, and the first one's be of long ago.
  broker = ours == '1', hosts = ours == '1',
}
local known = redis.call('HMGET', keys.meta, 'closed', 'ended', 'timeout', 'reshard')
local now, _, _, its_run = parse_closed(known[1])
local is_own = its_run == run
if known[2] == run then
  local is_end = level == 0 or level == 5
  if is_end then redis.call('HSET', keys.meta, 'ended', run) end
  return is_end and 1 or 0
end

local function is_allowed()
  if level == 0 then return true end
  if level == 1 then return not now or is_own end
  if level < 4 then return is_own and now >= level - 1 and now < 4 end
  if level == 5 then return is_own and now >= 3 end
  if now then return now >= 3 end
  local is_unused = not known[2] and not known[3] -- neither filled nor joined
  return is_unused or string.find(known[4] or '', ' ' .. run, 1, true) ~= nil -- or only a place to meet
end

local function empty()
  redis.call('UNLINK', keys.due, keys.relay, keys.leased, keys.refused, keys.parked, keys.paused, keys.behind,
    keys.dead, keys.records, keys.holders, keys.held, keys.tags, keys.templates, keys.template_uses, keys.claims,
    keys.errors, keys.tombstones, keys.tombstones_old, keys.calls, keys.calls_old, keys.outbox, keys.outbox_messages,
    keys.arrived, keys.arrived_old, keys.undo, keys.undo_old, keys.undo_bulks, keys.undo_bulks_old, keys.rules,
    keys.rules_next, keys.rules_trouble, keys.rules_named, keys.reconciled, keys.history, keys.history_changes,
    keys.history_parts, keys.scanners, keys.heartbeats)
  local fields = redis.call('HSCAN', keys.meta, '0', 'COUNT', 1000)[2]
  for at = 1, #fields, 2 do
    if not SETTINGS[fields[at]] then redis.call('HDEL', keys.meta, fields[at]) end
  end
end

if not is_allowed() then return 0 end
allow_when_full(keys.meta)
if level == 0 then
  -- With another name of the store, cursors of before are refused.
  if is_own and now == 4 then redis.call('HDEL', keys.meta, 'store') end
  redis.call('HSET', keys.meta, 'ended', run)
  if is_own then redis.call('HDEL', keys.meta, 'closed') end
elseif level == 5 then
  empty()
  redis.call('HSET', keys.meta, 'closed', table.concat({3, ours, theirs, run}, ' '), 'ended', run)
elseif not is_own or now <= level then
  if level == 4 and not (is_own and now == 4) then empty() end
  redis.call('HSET', keys.meta, 'closed', table.concat({level, ours, theirs, run}, ' '))
end
return 1
