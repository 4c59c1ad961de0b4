--[[ schedule: keep entries until they are due; each is scheduled, or refused, by itself.

KEYS[1]   due              ZSET  member -> due time, ms
KEYS[2]   relay            ZSET  member -> due time, ms
KEYS[3]   leased           ZSET  member -> lease deadline, ms
KEYS[4]   dead             ZSET  member -> since when, ms
KEYS[5]   refused          ZSET  member -> next try, ms
KEYS[6]   parked           ZSET  lane, due time, kind, member -> 0
KEYS[7]   records          HASH  id -> record
KEYS[8]   holders          HASH  key -> id of the entry that has it
KEYS[9]   tags             ZSET  tag, NUL, member -> 0
KEYS[10]  templates        HASH  name -> template
KEYS[11]  template_uses    HASH  name -> how many records share the template
KEYS[12]  claims           HASH  id -> claim
KEYS[13]  errors           HASH  id -> what went wrong with it last
KEYS[14]  tombstones       HASH  id -> tombstone of what left
KEYS[15]  wake             CHANNEL  where scanners are told to look
KEYS[16]  timer            STRING  which scanner is up next, and when
KEYS[17]  answers          HASH  operation -> answer
KEYS[18]  answers_old      HASH  the same, older
KEYS[19]  fences           HASH  id -> when a call left no entry under it, us
KEYS[20]  fences_old       HASH  the same, older
KEYS[21]  outbox           ZSET  id whose REVOKED is to be stored -> from when on a scanner does it, ms
KEYS[22]  outbox_messages  HASH  id -> what is owed for it
KEYS[23]  meta             HASH  seq -> last insertion number; timeout and turned, see prelude/call.lua
KEYS[24]  history          LIST  what happened last, see prelude/history.lua
KEYS[25]  arrived          HASH  mark -> what became of its message; see prelude/marks.lua
KEYS[26]  arrived_old      HASH  the generation before

ARGV[1]  operation    names the call
ARGV[2]  issued       when this request was made, us by Redis's clock
ARGV[3]  deadline     when the call ends, us by Redis's clock
ARGV[4]  latest       greatest due time allowed, unix ms
ARGV[5]  supersede    1: the caller is this very task, running: an entry that may have been delivered gives way
ARGV[6]  owes         REVOKED is to be stored: 0, for none; 1, for what is replaced; 2, also for what gives way
                      to what is kept, as its id has been given out
ARGV[7]  max_bytes    look at nothing more after so many bytes of what is in the way, > 0
ARGV[8]  deliveries   empty; or, where the entries were messages that a broker delivered: how many ms a generation of
                      marks lasts, how many it has at most, blanks behind both, and of each entry its mark, 16 bytes;
                      1, if it may have been delivered before, or 0: what was marked before this is another message;
                      and when it was received (us, 7 bytes), or 0: its task runs, and asks for this now
ARGV[9...] entries    of each entry, one after the other:
         id           the task's id
         mode         at | after: what `us` counts from
         us           unix time, or microseconds from now, >= 0
         destination  the record's header, from its second byte
         body         the record's part from the flags on
         template     the template that `body` shares; empty if it comes with an entry before this
                      one, or the caller believes it is here
         conflict     what becomes of it where an entry has its id, or waits under its key: empty, it is refused;
                      keep, that one stays; replace, that one goes; earliest, latest: the one that is due then
                      stays; debounce, replace it, and be due so many ms (after a blank, if any) after that one
                      was scheduled, at the latest

Returns  {now in us, 'join' | 'late' | 'stale'}: all refused, see prelude/call.lua; {now in us, 'templates'}:
         all refused, as those that are shared have to be sent along; or {now in us, 'answer', text}, and to
         the first request {id, c or u, when (us), message, why, ...} of whom REVOKED is to be stored for. The text has a
         word of each entry: its due time; or, where it is not written: -1, the id is scheduled already, or its
         message was let through to another worker since; -2, due past `latest`; -3, an entry of its id is leased; -4, ask again; -5, its message became an entry before; k
         and a due time, that one stays. Behind it, each after a colon, the ids of who has the key (-1), was replaced,
         or stays (k).
Cost     O(log N) an entry; the caller bounds entries and bytes
Keeps    an id has one record and one place, a key has one entry that waits; a repeated operation changes nothing
]]
local operation, issued, deadline = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local latest, supersede = tonumber(ARGV[4]), ARGV[5] == '1'
local owes, max_bytes, deliveries = tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8]
local keep_ms, most_marks, messages = string.match(deliveries, '^(%d+) (%d+) (.*)$')
local CONFLICT, LATE, AGAIN, TAKEN = '-1', '-2', '-4', '-5'
local FIRST, FIELDS = 9, 7 -- of an entry
local count = (#ARGV - FIRST + 1) / FIELDS

local call, ended = begin_call(operation, issued, deadline, answers, answers_old, meta)
if not call then return ended end

-- All that can fail comes before the first write, which is that of `meta`: nothing is rolled back.
local promise = promise_of(timer)
local leftovers = redis.call('HLEN', claims) + redis.call('HLEN', errors) > 0
local is_owing = redis.call('ZCARD', outbox) > 0
local has_fences = redis.call('HLEN', fences) + redis.call('HLEN', fences_old) > 0

-- Whether all templates that are shared are here, whole, or come along.
local here = {} -- name of a template -> true
local brought = {} -- templates that came along, be their entry refused or not
for at = FIRST, #ARGV, FIELDS do
  local name, template = name_in(ARGV[at + 4]), ARGV[at + 5]
  if name and template ~= '' then brought[name] = template end
  if name and not here[name] then
    here[name] = text_of(templates, name) ~= nil
    if not here[name] and not brought[name] then return {call.now_us, 'templates'} end
  end
  if has_fences and is_fenced(call, ARGV[at], issued, fences, fences_old) then return stale(call) end
end

local places = {due, relay, leased, dead, refused, parked = parked}
local now = math.floor(call.now_us / 1000)
local created_now, changed_now = string.format('%016.0f', call.now_us), seven_bytes(call.now_us)
local step = {
  call = call, issued = issued, now = now, created = created_now, keys = keys, places = places, owes = owes,
  has_fences = has_fences, here = here, brought = brought, leftovers = leftovers,
  bytes = 0, owed = {}, asked = {}, cache = {},
}
local sharing = {} -- name of a template -> uses that are counted, and not made yet
local earliest = math.huge -- due time of what was written
local seq -- last insertion number used
local marks = {} -- of messages that became entries

-- Count a use of a template before it is made, and with the first those of all that may follow: a
-- script that Redis stops half-way must not leave too low a count.
local function count_use(name, most)
  if not sharing[name] then
    redis.call('HINCRBY', template_uses, name, most)
    sharing[name] = most
  end
  sharing[name] = sharing[name] - 1
end

local function next_order(size)
  if not seq then
    seq = take_numbers(count, meta, records) - count
  end
  seq = seq + 1
  return six_bytes(seq * 2 + (size > SMALL and 1 or 0))
end

-- The mark of the message that an entry was, and why it does not become one, if so.
local function delivered(at)
  if not messages then return nil end
  local first = (at - FIRST) / FIELDS * 24 + 1
  local mark, again = sub(messages, first, first + 15), sub(messages, first + 16, first + 16) == '1'
  local received = number_in(messages, first + 17, first + 23)
  local us = marked(arrived, arrived_old, mark)
  if us and us < 0 and -us >= (again and 0 or received) then return mark, TAKEN end
  -- It runs elsewhere. Whoever died before that does not ask anew; and who runs it himself does.
  if us and us > (received > 0 and received or issued) then return mark, received > 0 and CONFLICT or AGAIN end
  return mark
end

local function schedule(at)
  local id, mode, us, destination, body, conflict =
    ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4], ARGV[at + 6]
  if step.bytes >= max_bytes then return AGAIN end
  local mark, refused_as = delivered(at)
  if refused_as then return refused_as end
  local when = due_in_ms(mode == 'after' and call.now_us + us or tonumber(us), call.now_us)
  if when > latest then return LATE end

  local extras = extras_of_body(body)
  local key = extras and extras.key
  local new = {id = id, key = key, destination = destination, body = body}
  local own = redis.call('HEXISTS', records, id) == 1 and present(step, id)
  local superseded = own and supersede and may_be_delivered(own)
  if own and not superseded and (conflict == '' or not own.header_end) then return CONFLICT end
  local named = key and named_by(step, key, id)
  local holder = named and named.state == 'waiting' and named.place ~= leased and named or nil
  if holder and conflict == '' then return CONFLICT .. quoted(holder.id) end
  if own and not superseded and is_newer(step, own) or key and is_late_under(step, key, named) then return AGAIN end

  local ways, answer, created = {holder}, nil, created_now
  if own and not superseded then ways[#ways + 1] = own end
  if #ways > 0 then
    answer, when, created = settle(step, ways, not superseded and own, new, when, conflict)
    if answer then return answer end
  end

  -- The first write: one that a full Redis refuses. After one that frees memory it would let all pass.
  local order = next_order(#destination + #body + 50)
  local name = name_in(body)
  if name then
    count_use(name, (#ARGV + 1 - at) / FIELDS)
    if not here[name] then
      redis.call('HSET', templates, name, brought[name])
      here[name] = true
    end
  end

  local index, text = sub(destination, 1, 1) == 'L' and due or relay, whole(when)
  local changed = own and changed_next(own.record, own.header_end, call.now_us) or changed_now
  -- The place before its record, so that no record is without one.
  redis.call('ZADD', index, text, order .. id)
  if extras then index_extras(extras, id, order .. id, holders, tags) end
  -- A copy of the earlier entry may be in a queue. Of the task that runs, it is the caller.
  if own then own.lasts = not superseded and own.claim and own.claim.uncertain end
  -- Whoever holds the lease of the earlier entry must not acknowledge this one.
  if own and (own.lasts or own.place == leased) then
    own.claim.refusals = 0
    end_claim(claims, id, own.claim)
  end
  redis.call('HSET', records, id, record_of(destination, order, text, created, changed, body))
  if leftovers then
    if not (own and own.lasts) then redis.call('HDEL', claims, id) end
    redis.call('HDEL', errors, id)
    redis.call('ZREM', dead, RECORDLESS .. id)
  end
  -- It is no longer revoked, be it by an entry of this very call.
  if is_owing or step.owed[id] then
    step.owed[id] = nil
    redis.call('HDEL', outbox_messages, id)
    redis.call('ZREM', outbox, id)
  end
  if own then displace(step, own, new) end
  if holder then displace(step, holder, new) end
  if past.kept then past.note('s', now, past.told_of(padded(text) .. sub(body, 2, 13), id, key)) end
  earliest = math.min(earliest, when)
  if mark then marks[#marks + 1], marks[#marks + 2] = mark, whole(-call.now_us) end
  return text .. (holder and quoted(holder.id) or '')
end

local told, taken = {}, {}
for at = FIRST, #ARGV, FIELDS do
  local id = ARGV[at]
  -- An id that comes twice: the second is refused whatever became of the first.
  local one = taken[id] and CONFLICT or schedule(at)
  taken[id] = one ~= LATE
  told[#told + 1] = one
end
for name, unused in pairs(sharing) do
  if unused > 0 then drop_template(templates, template_uses, name, unused) end
end
-- After the entries: a script that Redis stops half-way has forgotten none of the messages.
if #marks > 0 then set_marks(arrived, arrived_old, now, tonumber(keep_ms), tonumber(most_marks), marks) end
if earliest < math.huge then wake_for(earliest, now, wake, timer, promise) end
past.write(history)
-- Nothing was written, so nothing is refused for want of memory.
if not seq then allow_when_full(templates) end
local revoked = {}
for _, one in pairs(step.owed) do
  for _, word in ipairs(one) do revoked[#revoked + 1] = word end
end
-- One text: a client takes longer to read hundreds of replies than a script to write their entries.
return end_call(call, table.concat(told, ' '), answers, answers_old, fences, fences_old, meta,
  #revoked > 0 and {revoked} or nil)
