--[[ check: look at a slice of one key for what does not fit the others.

KEYS[1]   due            ZSET  member -> due time, ms
KEYS[2]   relay          ZSET  member -> due time, ms
KEYS[3]   leased         ZSET  member -> lease deadline, ms
KEYS[4]   dead           ZSET  member -> since when, ms
KEYS[5]   refused        ZSET  member -> next try, ms
KEYS[6]   parked         ZSET  lane, due time, kind, member -> 0
KEYS[7]   records        HASH  id -> record
KEYS[8]   templates      HASH  name -> template
KEYS[9]   template_uses  HASH  name -> how many records share the template
KEYS[10]  claims         HASH  id -> claim
KEYS[11]  errors         HASH  id -> what went wrong with it last
KEYS[12]  meta           HASH  seq -> last insertion number

ARGV[1]  part    due | relay | leased | dead | records | templates | template_uses | claims | errors
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

local indexes = {due = due, relay = relay, leased = leased, dead = dead}
local hashes = {
  records = records, templates = templates, template_uses = template_uses, claims = claims,
  errors = errors,
}
local places = {due, relay, leased, dead, refused, parked = parked}
local now = math.floor(clock_us() / 1000)
local found, shared = {}, {}

local function report(kind, field)
  found[#found + 1], found[#found + 2] = kind, field
end

local function look_at_place(member, score)
  local id = id_of(member)
  local record = redis.call('HGET', records, id)
  if not record then return report(part == 'dead' and 'dead_without_record' or 'place_without_record', id) end
  local header_end = header_end_of(record)
  if not header_end then return end -- told of as a record
  if member_of(record, header_end, id) ~= member then return report('second_place', id) end
  if place_of(places, member) ~= indexes[part] then
    report('second_place', id)
  end
  if part ~= 'leased' then return end
  local claim = redis.call('HGET', claims, id)
  if not claim then return report('lease_without_claim', id) end
  local left = tonumber(score) - now
  if left < -late or left > parse_claim(claim).lease_ms + late then report('stale_lease', id) end
end

local function look_at_record(id, record)
  local header_end = header_end_of(record)
  if not header_end then return report('unreadable_record', id) end
  local member = member_of(record, header_end, id)
  if not place_of(places, member, record, header_end) then report('record_without_place', id) end
  local name = template_of(record, header_end)
  if not name then return end
  shared[#shared + 1], shared[#shared + 2] = name, member
  if redis.call('HEXISTS', templates, name) == 0 then report('template_gone', id) end
end

local looks = {
  due = look_at_place, relay = look_at_place, leased = look_at_place, dead = look_at_place,
  records = look_at_record,
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
    local record = redis.call('HGET', records, id)
    local header_end = header_end_of(record)
    if record and not header_end then return end
    if not record and redis.call('ZSCORE', dead, RECORDLESS .. id) then return end
    if not record or not redis.call('ZSCORE', dead, member_of(record, header_end, id)) then
      report('reason_without_dead', id)
    end
  end,
}

local index = indexes[part]
local slice = index and redis.call('ZSCAN', index, cursor, 'COUNT', count)
  or redis.call('HSCAN', hashes[part], cursor, 'COUNT', count)
for at = 1, #slice[2], 2 do looks[part](slice[2][at], slice[2][at + 1]) end
return {slice[1], found, redis.call('HGET', meta, 'seq') or '0', shared}
