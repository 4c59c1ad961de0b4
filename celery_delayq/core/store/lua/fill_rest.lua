--[[ fill_rest: write parts of `move_rest` to a shard that is being filled.

closed   9, see prelude/closed.lua
text     run     the name of the resharding
text     part    as in `move_rest`; or meta
number   rate    paused: by how much lanes come back faster here
number   last    paused: the last insertion number of the entries that come back
rows...  given   of each:
         field   its field; of a list of the history: how many are older
         value   and its value

Returns  1; or 0: this shard is not being filled by that resharding
Cost     O(M log N)
Keeps    the later of two tombstones, and the first of two of all else
]]
local HASH = {
  tombstones = keys.tombstones, tombstones_old = keys.tombstones_old, arrived = keys.arrived,
  arrived_old = keys.arrived_old, meta = keys.meta,
}
local level, _, _, its_run = parse_closed(redis.call('HGET', keys.meta, 'closed'))
if level ~= 4 or its_run ~= run then return 0 end

local write = {}

for name, key in pairs({
  history = keys.history, history_changes = keys.history_changes, history_parts = keys.history_parts,
}) do
  -- The list has so many, or a request came twice.
  write[name] = function(older, event)
    local at = tonumber(older)
    local last = redis.call('LRANGE', key, math.max(0, at - 1), at)
    if #last == math.min(at, 1) then redis.call('LPUSH', key, event) end
  end
end

function write.outbox_messages(id, text)
  local when, owed = string.match(text, '^(%S+) (.*)$')
  redis.call('HSET', keys.outbox_messages, id, owed)
  redis.call('ZADD', keys.outbox, when, id)
end

function write.held(key, text)
  local ends, holder = string.match(text, '^(%S+) (.*)$')
  if redis.call('HEXISTS', keys.holders, key) == 1 then return end -- an entry's
  redis.call('ZADD', keys.held, ends, key) -- first: without it, the key would be held for ever
  redis.call('HSET', keys.holders, key, holder)
end

function write.rules(name, row)
  if redis.call('HEXISTS', keys.rules, name) == 1 then return end
  redis.call('ZADD', keys.rules_next, '0', name)
  redis.call('HSET', keys.rules, name, row)
end

function write.paused(lane, text)
  local pause = parse_pause(text)
  if not pause then return end
  if pause.rate > 0 then pause.rate = math.max(pause.rate * rate, 0.000001) end -- 0 is no limit
  if pause.state == 'b' then pause.last = last end
  redis.call('HSET', keys.paused, lane, format_pause(pause))
  if pause.state == 'b' then note_returning(lane, true) end
end

local function write_field(field, value)
  local known = redis.call('HGET', HASH[part], field)
  local is_later = known and sub(part, 1, 4) == 'tomb' and sub(known, 2) < sub(value, 2)
  if not known or is_later then redis.call('HSET', HASH[part], field, value) end
end

for _, one in ipairs(given) do (write[part] or write_field)(one.field, one.value) end
return 1
