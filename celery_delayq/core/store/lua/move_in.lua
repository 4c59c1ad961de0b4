--[[ move_in: write entries of `move_out` to a shard that is being filled.

closed   9, see prelude/closed.lua
text     run        the name of the resharding
text     part       the entries' place
rows...  entries    of each:
         id         the task's id
         there      its member in the place
         score      its score there
         record     its record; empty: it is lost
         named      1: it holds its key; or 0
         claim      its claim; or empty
         error      its last error; or empty
         template   the template that it shares; empty if none, or if it came before

Returns  1; 0: this shard is not being filled by that resharding; or the id of an entry that another shard has as well
Cost     O(log N) an entry
Keeps    what is here: the same entry is written once
]]
local PLACE = {
  due = keys.due, relay = keys.relay, leased = keys.leased, refused = keys.refused, parked = keys.parked,
  behind = keys.behind, dead = keys.dead,
}
local level, _, _, its_run = parse_closed(redis.call('HGET', keys.meta, 'closed'))
if level ~= 4 or its_run ~= run then return 0 end

-- The record comes last: an entry that has one is whole.
local function write(entry)
  local id, record = entry.id, entry.record
  local header_end = header_end_of(record)
  redis.call('ZADD', PLACE[part], entry.score, entry.there)
  if entry.claim ~= '' then redis.call('HSET', keys.claims, id, entry.claim) end
  if entry.error ~= '' then redis.call('HSET', keys.errors, id, entry.error) end
  if header_end then
    local extras, name = extras_of(record, header_end), template_of(record, header_end)
    local member = member_of(record, header_end, id)
    local takes_key = extras and entry.named == '1' and extras.key
    if extras then index_extras({key = takes_key, tags = extras.tags}, id, member) end
    if part == 'behind' and extras and extras.key then stand_behind(extras.key, member) end
    if name and entry.template ~= '' then redis.call('HSET', keys.templates, name, entry.template) end
    if name then redis.call('HINCRBY', keys.template_uses, name, 1) end
  end
  if record ~= '' then redis.call('HSET', keys.records, id, record) end
end

for _, entry in ipairs(entries) do
  local known = redis.call('HGET', keys.records, entry.id)
  if known and known ~= entry.record then return entry.id end
  if not known then write(entry) end
end
return 1
