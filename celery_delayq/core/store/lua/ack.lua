--[[ ack: forget entries that the broker has confirmed.

closed   2, see prelude/closed.lua
text        token    the claim's fencing token
text...     members  the confirmed entries

Returns  how many were still leased under this token; the others belong to another claim by now
Cost     O(M log N)
Keeps    a late ack does not touch an entry that was claimed again or rescheduled
]]
local now_us = clock_us()
local now = math.floor(now_us / 1000)
local ids, mine, shared, young = {}, {}, {}, {}
local leaving = {ids = ids, place = keys.leased, members = mine, claimed = true, shared = shared}
local recent = recent_of(now_us)
leaving.failed = redis.call('HLEN', keys.errors) > 0

local function forget(member, claim, record)
  if not is_claimed(claim, token) then return end
  local id = id_of(member)
  ids[#ids + 1], mine[#mine + 1] = id, member
  local header_end = header_end_of(record)
  if not header_end then return end
  note_young(young, recent, id, record, header_end)
  if past.kept or ends_in_extras(record, header_end) then note_extras(leaving, id, member, record, header_end) end
  local name = template_of(record, header_end)
  if name then shared[name] = (shared[name] or 0) + 1 end
end

local asked = {}
for at, member in ipairs(members) do asked[at] = id_of(member) end
local claimed = redis.call('HMGET', keys.claims, unpack(asked))
local found = redis.call('HMGET', keys.records, unpack(asked))
for at, claim in ipairs(claimed) do forget(members[at], claim, found[at]) end
allow_when_full(keys.claims)
if #ids > 0 then
  fence_young(young, now_us)
  depart(leaving, 'h', now)
  if past.kept then write_history() end
  turn_tombstones(now)
end
return #ids
