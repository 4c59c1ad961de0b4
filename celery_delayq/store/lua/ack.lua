--[[ ack: forget entries that the broker has confirmed.

KEYS[1]  leased      ZSET  member -> lease deadline, ms
KEYS[2]  messages    HASH  id -> record
KEYS[3]  templates   HASH  name -> template
KEYS[4]  uses        HASH  name -> how many records share the template
KEYS[5]  claims      HASH  id -> claim
KEYS[6]  handed      HASH  id -> trace of what left
KEYS[7]  handed_old  HASH  the same, older

ARGV[1]     token    the claim's fencing token
ARGV[2...]  members  what was confirmed

Returns  how many were still held under this token; the others belong to somebody else now
Cost     O(M log N)
Keeps    an entry that was claimed anew, or moved, is not touched by a late ack
]]
local leased, messages, templates, uses = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local claims, handed, handed_old = KEYS[5], KEYS[6], KEYS[7]
local token = ARGV[1]

local now = math.floor(clock_us() / 1000)
local ids, mine, traces, shared = {}, {}, {}, {}
check_types({leased}, {messages, templates, uses, claims, handed, handed_old})

local function forget(member, claim, record)
  if not is_claimed(claim, token) then return end
  local id = id_of(member)
  ids[#ids + 1], mine[#mine + 1] = id, member
  local seam = seam_of(record)
  if not seam then return end
  local at = #traces
  traces[at + 1], traces[at + 2] = id, trace_of('h', now, record, seam)
  local name = template_of(record, seam)
  if name then shared[name] = (shared[name] or 0) + 1 end
end

local asked = {}
for at = 2, #ARGV do asked[at - 1] = id_of(ARGV[at]) end
local held = redis.call('HMGET', claims, unpack(asked))
local records = redis.call('HMGET', messages, unpack(asked))
for at, claim in ipairs(held) do forget(ARGV[at + 1], claim, records[at]) end
allow_when_full(claims)
if #traces > 0 then redis.call('HSET', handed, unpack(traces)) end
if #ids > 0 then
  redis.call('ZREM', leased, unpack(mine))
  redis.call('HDEL', claims, unpack(ids))
  redis.call('HDEL', messages, unpack(ids))
end
for name, count in pairs(shared) do drop_template(templates, uses, name, count) end
if is_full(handed, handed_old, 0) then rotate(handed, handed_old) end
return #ids
