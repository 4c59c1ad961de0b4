--[[ check: look at a slice of one key for what does not fit the others.

KEYS[1]   due              ZSET  member -> due time, ms
KEYS[2]   relay            ZSET  member -> due time, ms
KEYS[3]   leased           ZSET  member -> lease deadline, ms
KEYS[4]   dead             ZSET  member -> since when, ms
KEYS[5]   refused          ZSET  member -> next try, ms
KEYS[6]   parked           ZSET  lane, due time, kind, member -> 0
KEYS[7]   paused           HASH  lane -> what is paused, and how it comes back
KEYS[8]   records          HASH  id -> record
KEYS[9]   holders          HASH  key -> id of the entry that has it
KEYS[10]  tags             ZSET  tag, NUL, member -> 0
KEYS[11]  templates        HASH  name -> template
KEYS[12]  template_uses    HASH  name -> how many records share the template
KEYS[13]  claims           HASH  id -> claim
KEYS[14]  errors           HASH  id -> what went wrong with it last
KEYS[15]  outbox           ZSET  id whose REVOKED is to be stored -> from when on a scanner does it, ms
KEYS[16]  outbox_messages  HASH  id -> what is owed for it
KEYS[17]  meta             HASH  seq -> last insertion number

ARGV[1]  part    due | relay | leased | dead | refused | parked | records | holders | tags | templates |
                 template_uses | claims | errors | outbox | outbox_messages | meta
ARGV[2]  cursor  where the last slice ended; 0 for the start
ARGV[3]  count   about how many fields to look at, 1..1000

Returns  {the next cursor, or 0 at the end; {kind, id, field, ...}; last insertion number; now in us;
         of records: {name, member, when it was changed last, ...} of those that share a template;
         of template_uses: {name, count, '', ...}; how many bytes were read}
Cost     O(count * log N)
Keeps    changes nothing; all that one finding is about is looked at in this one step, so that what is
         in motion is none
]]
local part, cursor, count = ARGV[1], ARGV[2], ARGV[3]

local indexes = {
  due = due, relay = relay, leased = leased, dead = dead, refused = refused, parked = parked, tags = tags,
  outbox = outbox,
}
local hashes = {
  records = records, holders = holders, templates = templates, template_uses = template_uses, claims = claims,
  errors = errors, outbox_messages = outbox_messages, meta = meta,
}
local found, shared, field = {}, {}, nil

local function report(kind, id)
  local at = #found
  found[at + 1], found[at + 2], found[at + 3] = kind, id, field
end

local function share(name, value, changed)
  local at = #shared
  shared[at + 1], shared[at + 2], shared[at + 3] = name, value, changed
end

local look = misfits.look(keys, report, share)
local index = indexes[part]
local slice = index and redis.call('ZSCAN', index, cursor, 'COUNT', count)
  or redis.call('HSCAN', hashes[part], cursor, 'COUNT', count)
for at = 1, #slice[2], 2 do
  field = slice[2][at]
  look.bytes = look.bytes + #field + #slice[2][at + 1]
  misfits.at(part, field, slice[2][at + 1], look)
end
return {slice[1], found, redis.call('HGET', meta, 'seq') or '0', clock_us(), shared, look.bytes}
