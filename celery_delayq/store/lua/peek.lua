--[[ peek: what a selection means of what it met, and where that stands.

KEYS[1]   due        ZSET  member -> due time, ms
KEYS[2]   relay      ZSET  member -> due time, ms
KEYS[3]   leased     ZSET  member -> lease deadline, ms
KEYS[4]   dead       ZSET  member -> since when, ms
KEYS[5]   refused    ZSET  member -> next try, ms
KEYS[6]   parked     ZSET  lane, due time, kind, member -> 0
KEYS[7]   paused     HASH  lane -> what is paused, and how it comes back
KEYS[8]   records    HASH  id -> record
KEYS[9]   templates  HASH  name -> template
KEYS[10]  errors     HASH  id -> what went wrong with it last
KEYS[11]  claims     HASH  id -> claim

ARGV[1]  reads      1: the records are wanted; or 0
ARGV[2]  filter     what the selection picks by: see prelude/targets.lua
ARGV[3]  max_bytes  look at nothing more after so many bytes, > 0
ARGV[4...] members  what it met, 1 to 1000

Returns  {now in us, text, {record, error or '', known, ...} of those that it means, if they are wanted, in their
         order, {name, template, ...} they share}. known: attempts made, next try in ms or -1, since when it is dead
         in ms or -1, by what it is paused, as `find` has it, since when its lateness counts, ms, or -1, blanks
         between. The text has a word of each member: SCHEDULED, PAUSED, IN_FLIGHT (its lease
         lasts), LAPSED (it is over) or DEAD, then the due time, ms, and header_end | UNREADABLE, it is dead, and cannot
         be read | skipped | again (it was not looked at)
Cost     O(log N) a member
Keeps    changes nothing
]]
local reads, filter, max_bytes = ARGV[1] == '1', filter_of(ARGV[2]), tonumber(ARGV[3])
local places = {due, relay, leased, dead, refused, parked = parked}
local now_us = clock_us()
local lanes = new_lanes(paused, now_us)
local words, found, brought, bytes = {}, {}, {}, 0

-- Whether a selection means what cannot be read: by nothing but that it is dead.
local asks_for_dead = filter.state == 'DEAD'
  and not (filter.task or filter.queue or filter.tag or filter.after or filter.before)

local function read(id, record, place, score, header_end)
  if not reads then return end
  local attempts = place ~= due and parse_claim(redis.call('HGET', claims, id)).attempts or 0
  local known = {attempts, place == refused and score or -1, place == dead and score or -1, '-', -1}
  if header_end then
    known[4] = paused_by(lanes, record, header_end)
    known[5] = counted_from(lanes, record, header_end, true) or -1
  end
  found[#found + 1], found[#found + 2] = record or '', redis.call('HGET', errors, id) or ''
  found[#found + 1] = table.concat(known, ' ')
end

local function word_of(member)
  local id = id_of(member)
  local record = redis.call('HGET', records, id)
  bytes = bytes + #(record or '')
  local header_end = header_end_of(record)
  if not header_end then
    local since = asks_for_dead and redis.call('ZSCORE', dead, member)
    if not since then return SKIPPED end
    read(id, record, dead, since)
    return 'UNREADABLE'
  end
  local entry = {record = record, header_end = header_end, member = member_of(record, header_end, id)}
  entry.place, entry.score, entry.there = place_of(places, entry.member, record, header_end)
  if not is_meant(entry, member, filter, lanes, keys) then return SKIPPED end
  read(id, record, entry.place, entry.score, header_end)
  if reads then bytes = bytes + (bring(templates, template_of(record, header_end), brought) or 0) end
  local state = state_of(entry, lanes, keys)
  if entry.place == leased and tonumber(entry.score) <= now_us / 1000 then state = 'LAPSED' end
  return state .. ':' .. whole(due_of(record, header_end)) .. ':' .. header_end
end

for at = 4, #ARGV do words[#words + 1] = bytes < max_bytes and word_of(ARGV[at]) or 'again' end
return {now_us, table.concat(words, ' '), found, brought}
