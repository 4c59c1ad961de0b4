--[[ check: look at a slice of one key for what does not fit the others.

KEYS[1]   due            ZSET  member -> due time, ms
KEYS[2]   relay          ZSET  member -> due time, ms
KEYS[3]   leased         ZSET  member -> lease deadline, ms
KEYS[4]   dead           ZSET  member -> since when, ms
KEYS[5]   refused        ZSET  member -> next try, ms
KEYS[6]   parked         ZSET  lane, due time, kind, member -> 0
KEYS[7]   paused         HASH  lane -> what is paused, and how it comes back
KEYS[8]   records        HASH  id -> record
KEYS[9]   holders        HASH  key -> id of the entry that has it
KEYS[10]  tags           ZSET  tag, NUL, member -> 0
KEYS[11]  templates      HASH  name -> template
KEYS[12]  template_uses  HASH  name -> how many records share the template
KEYS[13]  claims         HASH  id -> claim
KEYS[14]  errors         HASH  id -> what went wrong with it last
KEYS[15]  meta           HASH  seq -> last insertion number

ARGV[1]  part    due | relay | leased | dead | refused | parked | records | holders | tags | templates |
                 template_uses | claims | errors
ARGV[2]  cursor  where the last slice ended; 0 for the start
ARGV[3]  count   about how many fields to look at, 1..1000
ARGV[4]  late    how long after its end a lease may stay, ms

Returns  {the next cursor, or 0 at the end; {kind, field, kind, field, ...}; last insertion number;
         of records: {name, member, ...} of those that share a template; of template_uses: {name, count, ...}}
Cost     O(count * log N)
Keeps    changes nothing; all that one finding is about is looked at in this one step, so that what is
         in motion is none
]]
local part, cursor, count, late = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])

local indexes = {due = due, relay = relay, leased = leased, dead = dead, refused = refused, parked = parked, tags = tags}
local hashes = {
  records = records, holders = holders, templates = templates, template_uses = template_uses, claims = claims,
  errors = errors,
}
local places = {due, relay, leased, dead, refused, parked = parked}
local now = math.floor(clock_us() / 1000)
local BEHIND_LANE = 16 -- where a member begins in that of `parked`
local found, shared = {}, {}

local function report(kind, field)
  found[#found + 1], found[#found + 2] = kind, field
end

local function look_at_lease(id, deadline)
  local claim = redis.call('HGET', claims, id)
  if not claim then return report('lease_without_claim', id) end
  local left = tonumber(deadline) - now
  if left < -late or left > parse_claim(claim).lease_ms + late then report('stale_lease', id) end
end

local function look_at_place(there, score)
  local member = part == 'parked' and sub(there, BEHIND_LANE) or there
  local id = id_of(member)
  local record = redis.call('HGET', records, id)
  if not record then return report(part == 'dead' and 'dead_without_record' or 'place_without_record', id) end
  local header_end = header_end_of(record)
  if not header_end then return end -- told of as a record
  if member_of(record, header_end, id) ~= member then return report('second_place', id) end
  local place, _, as = place_of(places, member, record, header_end)
  if place ~= indexes[part] or as ~= there then return report('second_place', id) end
  if part == 'leased' then look_at_lease(id, score) end
  if part == 'parked' and redis.call('HEXISTS', paused, sub(there, 1, 7)) == 0 then report('parked_for_ever', id) end
end

-- The extras of an entry that can be read; or nil.
local function extras_at(id)
  local record = redis.call('HGET', records, id)
  local header_end = header_end_of(record)
  if header_end then return extras_of(record, header_end), member_of(record, header_end, id) end
end

local function look_at_holder(key, id)
  local extras = extras_at(id)
  if not extras or extras.key ~= key then report('key_without_entry', key) end
end

local function look_at_tag(there)
  local at = string.find(there, '%z') or 0
  local id = id_of(sub(there, at + 1))
  local extras, member = extras_at(id)
  for _, tag in ipairs(extras and extras.tags or {}) do
    if tag .. '\0' .. member == there then return end
  end
  report('tag_without_entry', id)
end

local function look_at_record(id, record)
  local header_end = header_end_of(record)
  if not header_end then return report('unreadable_record', id) end
  local member = member_of(record, header_end, id)
  if not place_of(places, member, record, header_end) then report('record_without_place', id) end
  local extras = extras_of(record, header_end)
  for _, tag in ipairs(extras and extras.tags or {}) do
    if not redis.call('ZSCORE', tags, tag .. '\0' .. member) then report('entry_without_tag', id) end
  end
  local name = template_of(record, header_end)
  if not name then return end
  shared[#shared + 1], shared[#shared + 2] = name, member
  if redis.call('HEXISTS', templates, name) == 0 then report('template_gone', id) end
end

local looks = {
  due = look_at_place, relay = look_at_place, leased = look_at_place, dead = look_at_place,
  refused = look_at_place, parked = look_at_place,
  records = look_at_record, holders = look_at_holder, tags = look_at_tag,
  templates = function(name)
    if redis.call('HEXISTS', template_uses, name) == 0 then report('template_without_count', name) end
  end,
  template_uses = function(name, uses)
    shared[#shared + 1], shared[#shared + 2] = name, uses
  end,
  claims = function(id)
    if redis.call('HEXISTS', records, id) == 0 then report('claim_without_record', id) end
  end,
  errors = function(id)
    if redis.call('HEXISTS', records, id) == 0 and not redis.call('ZSCORE', dead, RECORDLESS .. id) then
      report('error_without_record', id)
    end
  end,
}

local index = indexes[part]
local slice = index and redis.call('ZSCAN', index, cursor, 'COUNT', count)
  or redis.call('HSCAN', hashes[part], cursor, 'COUNT', count)
for at = 1, #slice[2], 2 do looks[part](slice[2][at], slice[2][at + 1]) end
return {slice[1], found, redis.call('HGET', meta, 'seq') or '0', shared}
