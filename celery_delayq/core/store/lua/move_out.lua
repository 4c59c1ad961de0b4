--[[ move_out: read entries of one place in a closed shard, with new insertion numbers, for another number of shards.

closed   9, see prelude/closed.lua
text     part       due | relay | leased | refused | parked | behind | dead
number   first      the rank of the first one
number   base       the last number given before this place
number   count      most to read, 1..1000
number   max_bytes  read no more after so many bytes, > 0

reply    next, found of id key there score record named claim error template, templates of name text

Returns  the rank after the last one, or -1; of each its member there and its record, '' if it is lost, 1 if it holds its
         key, else 0, and the template that it shares; '' each, if there is none
Cost     O(log N + M log N), M <= count
Keeps    changes nothing
]]
local PLACE = {
  due = keys.due, relay = keys.relay, leased = keys.leased, refused = keys.refused, parked = keys.parked,
  behind = keys.behind, dead = keys.dead,
}
local rows, brought, bytes, rank = {}, {}, 0, first
local has_tries = redis.call('EXISTS', keys.claims, keys.errors) > 0

local function give(id, key, there, score, record, named, template)
  local at, claim, error = #rows, '', ''
  if has_tries then
    claim, error = redis.call('HGET', keys.claims, id) or '', redis.call('HGET', keys.errors, id) or ''
  end
  rows[at + 1], rows[at + 2], rows[at + 3], rows[at + 4], rows[at + 5] = id, key, there, score, record
  rows[at + 6], rows[at + 7], rows[at + 8], rows[at + 9] = named, claim, error, template
  bytes = bytes + #there + #record + #error
end

local function read(there, score)
  local member = part == 'parked' and parked_member(there) or there
  local id = id_of(member)
  local record = redis.call('HGET', keys.records, id)
  local header_end = header_end_of(record)
  if not header_end then
    -- Only the dead may lack a record, or have one that cannot be read; it stays as it is.
    if record or part == 'dead' then give(id, '', there, score, record or '', 0, '') end
    return
  end
  -- A script that Redis stopped half-way leaves a second place, which a later step would drop.
  if member_of(record, header_end, id) ~= member then return end
  local place, _, as = place_of(member, record, header_end)
  if place ~= PLACE[part] or as ~= there then return end
  local extras = extras_of(record, header_end)
  local key = extras and extras.key or ''
  local named = key ~= '' and redis.call('HGET', keys.holders, key) == id and 1 or 0
  local template = template_of(record, header_end) or ''
  if template ~= '' then bytes = bytes + (bring(template, brought) or 0) end
  -- The number's last bit tells the size of the record.
  local order = six_bytes((base + rank + 1) * 2 + number_of(member) % 2)
  record = sub(record, 1, header_end) .. order .. sub(record, header_end + DUE)
  give(id, key, sub(there, 1, #there - #member) .. order .. id, score, record, named, template)
end

local found = redis.call('ZRANGE', PLACE[part], first, first + count - 1, 'WITHSCORES')
for at = 1, #found, 2 do
  if bytes >= max_bytes then break end
  read(found[at], found[at + 1])
  rank = rank + 1
end
return {rank > first and rank or -1, rows, brought}
