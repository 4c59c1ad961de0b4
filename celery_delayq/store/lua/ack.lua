--[[ ack: forget entries that the broker has confirmed.

KEYS[1]   leased          ZSET  member -> lease deadline, ms
KEYS[2]   records         HASH  id -> record
KEYS[3]   holders         HASH  key -> id of the entry that has it
KEYS[4]   tags            ZSET  tag, NUL, member -> 0
KEYS[5]   templates       HASH  name -> template
KEYS[6]   template_uses   HASH  name -> how many records share the template
KEYS[7]   claims          HASH  id -> claim
KEYS[8]   errors          HASH  id -> what went wrong with it last
KEYS[9]   tombstones      HASH  id -> tombstone of what left
KEYS[10]  tombstones_old  HASH  the same, older
KEYS[11]  fences          HASH  id -> when a call left no entry under it, us
KEYS[12]  meta            HASH  timeout -> longest call, ms
KEYS[13]  history         LIST  what happened last, see prelude/history.lua

ARGV[1]     token    the claim's fencing token
ARGV[2...]  members  what was confirmed

Returns  how many were still leased under this token; the others belong to somebody else now
Cost     O(M log N)
Keeps    an entry that was claimed anew, or rescheduled, is not touched by a late ack
]]
local token = ARGV[1]

local now_us = clock_us()
local now = math.floor(now_us / 1000)
local ids, mine, shared, young = {}, {}, {}, {}
local leaving = {ids = ids, place = leased, members = mine, claimed = true, shared = shared}
local recent = recent_of(now_us, meta)
leaving.failed = redis.call('HLEN', errors) > 0

local function forget(member, claim, record)
  if not is_claimed(claim, token) then return end
  local id = id_of(member)
  ids[#ids + 1], mine[#mine + 1] = id, member
  local header_end = header_end_of(record)
  if not header_end then return end
  note_young(young, recent, id, record, header_end)
  note_extras(leaving, id, member, record, header_end)
  local name = template_of(record, header_end)
  if name then shared[name] = (shared[name] or 0) + 1 end
end

local asked = {}
for at = 2, #ARGV do asked[at - 1] = id_of(ARGV[at]) end
local claimed = redis.call('HMGET', claims, unpack(asked))
local found = redis.call('HMGET', records, unpack(asked))
for at, claim in ipairs(claimed) do forget(ARGV[at + 1], claim, found[at]) end
allow_when_full(claims)
if is_full(tombstones, 0) then rotate(tombstones, tombstones_old) end
if #ids > 0 then
  fence_young(young, fences, now_us)
  depart(leaving, 'h', now, keys)
  past.write(history)
end
return #ids
