--[[ Stands before every script: the clock, the layout of members and records, what repeats.

member   6 bytes insertion number, big-endian, then the id: equal due times keep insertion order

record   1 byte    format version, '1'; a script leaves a record of another format as it is
         1 byte    L: bound for a list in this Redis; R: for a relay through the broker
         length of the destination in decimal, ':', the destination (for L, the list's key)
         -- here the header ends; positions from here
         1..6      insertion number, as in the member
         7..19     due time, ms, 13 bytes, blanks after the digits
         20..32    when it was scheduled, ms, 13 digits
         33..40    operation id of the call that scheduled it
         41        I: the message follows, as JSON up to the due time at its end
                   T: it shares a template: 12 bytes that name it, then what differs, in 6 lines
template the message's JSON, in 10 lines: between two of them belongs what differs; see message_of
         Its name is the first 12 bytes of its text's SHA-1: one that was spoilt is not pushed.

A message is bytes to a script: it is put together and cut, never parsed.
]]
local FORMAT = '1'
local TOMBSTONES = 10000 -- entries that a generation of `tombstones` holds; there are two
local FRESH = 20 -- ms for which what fell due counts as fresh, see due_members
local SOUND = '^%d+ *' .. string.rep('%d', 13) .. '........[IT]$'
local DIGITS = '^' .. string.rep('%d', 26)
local LAST = 253402214400000 -- an expiry is no later: 9999-12-31 in UTC, a day that each zone can name
local HEX = string.rep('%02x', 12)
local sub = string.sub

local function clock_us()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- The text of a whole number: `tostring` keeps 14 digits only.
local function whole(number)
  return string.format('%.0f', number)
end

local function id_of(member)
  return sub(member, 7)
end

-- Whether what follows the header_end can be read: due time, time of scheduling, operation, form.
local function is_sound(record, header_end)
  if #record <= header_end + 41 then return false end
  -- Nearly always all digits.
  if string.find(record, DIGITS, header_end + 7) then
    local form = string.byte(record, header_end + 41)
    return form == 73 or form == 84
  end
  return string.find(sub(record, header_end + 7, header_end + 41), SOUND)
end

-- Where the destination of a record ends; or nil, and what is wrong with it.
local function header_end_of(record)
  if not record then return nil, 'no record' end
  local length, at = string.match(record, '^.(%d+):()', 2)
  if sub(record, 1, 1) ~= FORMAT then
    return nil, 'record format ' .. string.format('%q', sub(record, 1, 1)) .. ' is unknown'
  end
  if not length then return nil, 'record has no destination' end
  local header_end = at - 1 + length
  if not is_sound(record, header_end) then return nil, 'record is damaged' end
  return header_end
end

local function destination_of(record, header_end)
  return sub(record, string.find(record, ':', 3, true) + 1, header_end)
end

local function member_of(record, header_end, id)
  return sub(record, header_end + 1, header_end + 6) .. id
end

local function due_of(record, header_end)
  return tonumber(sub(record, header_end + 7, header_end + 19))
end

-- A due time as a record has it. (Not by string.format: the text is there as a rule, and printing a
-- number is slow.)
local function padded(text)
  return text .. string.rep(' ', 13 - #text)
end

-- A new record; `body` is its part from the letter that tells its form.
local function record_of(destination, order, due, created, operation, body)
  return FORMAT .. destination .. order .. padded(due) .. created .. operation .. body
end

-- The name of the template that the body of a new record shares, or false.
local function name_in(body)
  return sub(body, 1, 1) == 'T' and sub(body, 2, 13)
end

local function with_due(record, header_end, text)
  return sub(record, 1, header_end + 6) .. padded(text) .. sub(record, header_end + 20)
end

local function operation_of(record, header_end)
  return sub(record, header_end + 33, header_end + 40)
end

-- The name of the template that a record shares, or nil.
local function template_of(record, header_end)
  if string.byte(record, header_end + 41) == 84 then return sub(record, header_end + 42, header_end + 53) end
end

-- The lines of a template, kept in `cache` for the length of a script; or nil, and what is wrong with
-- it. (Not by gmatch, which looks at every byte by itself.)
local function lines_of(templates, name, cache)
  local lines = cache[name]
  if lines then return lines end
  local text = redis.call('HGET', templates, name)
  if not text then return nil, 'template is gone' end
  -- fakeredis has no sha1hex.
  if redis.sha1hex and string.format(HEX, string.byte(name, 1, 12)) ~= sub(redis.sha1hex(text), 1, 24) then
    return nil, 'template is damaged'
  end
  lines = {}
  local from, to = 1, string.find(text, '\n', 1, true)
  while to do
    lines[#lines + 1] = sub(text, from, to - 1)
    from, to = to + 1, string.find(text, '\n', to + 1, true)
  end
  lines[#lines + 1] = sub(text, from)
  cache[name] = lines
  return lines
end

-- ISO 8601 in UTC of unix ms, as a JSON string. Days to a date: Howard Hinnant, "chrono-Compatible
-- Low-Level Date Algorithms", civil_from_days.
local function iso_of(ms)
  local floor = math.floor
  local days, rest = floor(ms / 86400000) + 719468, ms % 86400000
  local era = floor(days / 146097)
  local doe = days - era * 146097
  local yoe = floor((doe - floor(doe / 1460) + floor(doe / 36524) - floor(doe / 146096)) / 365)
  local doy = doe - (365 * yoe + floor(yoe / 4) - floor(yoe / 100))
  local mp = floor((5 * doy + 2) / 153)
  local month = mp < 10 and mp + 3 or mp - 9
  local year = yoe + era * 400 + (month <= 2 and 1 or 0)
  return string.format('"%04d-%02d-%02dT%02d:%02d:%02d.%03d000+00:00"',
    year, month, doy - floor((153 * mp + 2) / 5) + 1, floor(rest / 3600000),
    floor(rest / 60000) % 60, floor(rest / 1000) % 60, rest % 1000)
end

-- The message of a record as kombu would have pushed it, nil, and the name of the template it shares;
-- or nil, and what is wrong.
local function message_of(record, header_end, id, templates, cache)
  local due = sub(record, header_end + 7, header_end + 19)
  local name = template_of(record, header_end)
  if not name then return sub(record, header_end + 42) .. due .. '}}' end
  local line, defect = lines_of(templates, name, cache)
  if not line then return nil, defect end
  -- Not by a pattern, which looks at every byte by itself.
  local first, find = header_end + 54, string.find
  local second = find(record, '\n', first, true)
  local third = second and find(record, '\n', second + 1, true)
  local fourth = third and find(record, '\n', third + 1, true)
  local fifth = fourth and find(record, '\n', fourth + 1, true)
  local body = fifth and find(record, '\n', fifth + 1, true)
  if not body or #line ~= 10 then return nil, 'record does not fit its template' end
  local root, parent = sub(record, first, second - 1), sub(record, second + 1, third - 1)
  local expires, args = sub(record, third + 1, fourth - 1), sub(record, fourth + 1, fifth - 1)
  local kwargs = sub(record, fifth + 1, body - 1)
  local quote = ''
  if root == '' then root, quote = id, '"' end
  -- An expiry that counts from the due time moves with it.
  if expires ~= 'null' and string.find(expires, '^[+-]') then
    if not string.find(expires, '^[+-]%d+$') then return nil, 'record does not fit its template' end
    expires = iso_of(math.max(0, math.min(tonumber(due) + tonumber(expires), LAST)))
  end
  return line[1] .. id .. line[2] .. id .. operation_of(record, header_end) .. line[3] .. sub(record, body + 1)
    .. line[4] .. id .. line[5] .. quote .. root .. quote .. line[6] .. parent .. line[7] .. expires
    .. line[8] .. args .. line[9] .. kwargs .. line[10] .. due .. '}}', nil, name
end

-- Add the template that a record shares to those sent along, {name, text, ...}, each once. Returns how
-- many bytes that took, or false if it is gone.
local function bring(templates, name, brought)
  if not name or brought[name] then return 0 end
  local text = redis.call('HGET', templates, name)
  if not text then return false end
  brought[name] = true
  brought[#brought + 1], brought[#brought + 2] = name, text
  return #text
end

-- `count` records that shared a template are gone; the last one takes it along. Where the count is no
-- number, the template stays: what left has left, and nobody is to be told of an error.
local function drop_template(templates, template_uses, name, count)
  local left = redis.pcall('HINCRBY', template_uses, name, -count)
  if type(left) == 'number' and left <= 0 then
    redis.call('HDEL', template_uses, name)
    redis.call('HDEL', templates, name)
  end
end

-- What is remembered of an entry that left: `stamp` ('h' handed over, 'c' cancelled, or 'u'
-- cancelled where a copy may have been delivered; and when), then of its record due time, time of
-- scheduling and operation. So a late cancel is told the truth, and a
-- call that is repeated because its reply was lost does not schedule again.
local function tombstone_of(stamp, record, header_end)
  return stamp .. sub(record, header_end + 7, header_end + 40)
end

-- The first of some indexes that holds a member, and the text of its score there; or nil.
local function place_of(indexes, member)
  for _, index in ipairs(indexes) do
    local score = redis.call('ZSCORE', index, member)
    if score then return index, score end
  end
end

-- The first write frees memory, if only none: when memory is full, Redis then lets the rest of a
-- script write. So what waits can leave a full Redis; only scheduling is refused.
local function allow_when_full(hash)
  redis.call('HDEL', hash, '')
end

-- Stop at a key of ours that holds something foreign, while nothing is written yet: there is no
-- rolling back.
local function check_types(zsets, hashes)
  for _, key in ipairs(zsets) do redis.call('ZCARD', key) end
  for _, key in ipairs(hashes) do redis.call('HLEN', key) end
end

-- Whether this generation of `tombstones` ends with the `count` entries that leave now. (Then it also
-- stops at a foreign key in place of the older one, which `rotate` would drop.)
local function is_full(tombstones, tombstones_old, count)
  if redis.call('HLEN', tombstones) + count < TOMBSTONES then return false end
  redis.call('HLEN', tombstones_old)
  return true
end

local function rotate(tombstones, tombstones_old)
  -- Not left to RENAME, which frees ten thousand fields there and then: some 4 ms.
  redis.call('UNLINK', tombstones_old)
  redis.call('RENAME', tombstones, tombstones_old)
end

local function find_tombstone(tombstones, tombstones_old, id)
  return redis.call('HGET', tombstones, id) or redis.call('HGET', tombstones_old, id)
end

-- Whether a due member is no entry, but what a script left that Redis stopped half-way: its entry has
-- left, or its id stands elsewhere. What has neither record nor tombstone lost its record.
local function is_leftover(member, record, header_end, indexes, tombstones, tombstones_old)
  if not record then return find_tombstone(tombstones, tombstones_old, id_of(member)) end
  local own = header_end and member_of(record, header_end, id_of(member)) or member
  return own ~= member and place_of(indexes, own)
end

local function was_handed_over(tombstones, tombstones_old, id)
  local tombstone = find_tombstone(tombstones, tombstones_old, id)
  return tombstone and sub(tombstone, 1, 1) == 'h'
end

local function head_of(index)
  local head = redis.call('ZRANGE', index, 0, 0, 'WITHSCORES')
  return head[2] and tonumber(head[2]) or -1
end

-- What to take next of an index: members that are due, in due order, at most `limit`. Where more than
-- that is overdue, up to a quarter are those that fell due just now, so that a backlog holds up
-- nothing that comes after it. Returns the members, the fresh ones first, and how many those are.
local function due_members(index, now, limit)
  local members = redis.call('ZRANGEBYSCORE', index, '-inf', whole(now), 'LIMIT', 0, limit)
  local last = #members == limit and redis.call('ZSCORE', index, members[limit])
  if not last or tonumber(last) >= now - FRESH then return members, 0 end
  local share = math.floor(limit / 4)
  local mixed = redis.call('ZRANGEBYSCORE', index, whole(now - FRESH), whole(now), 'LIMIT', 0, share)
  local fresh = #mixed
  for at = 1, limit - fresh do mixed[fresh + at] = members[at] end
  return mixed, fresh
end

-- Take the first `taken` members that due_members gave out of their index.
local function remove_taken(index, members, fresh, taken)
  if taken > fresh then redis.call('ZREMRANGEBYRANK', index, 0, taken - fresh - 1) end
  local first = math.min(taken, fresh)
  if first > 0 then redis.call('ZREM', index, unpack(members, 1, first)) end
end

-- Whether a scanner has to be woken for an entry due at `due`: it is earlier than the head. One token,
-- not one per entry: it wakes one scanner, and that one learns the head for itself.
local function needs_token(wake, index, due)
  local head = head_of(index)
  return (head < 0 or due < head) and redis.call('LLEN', wake) == 0
end

-- The claims field of an entry: what is remembered from one hand-over attempt to the next.
-- attempts: how often it was sent, or may have been; refusals: how often the broker said no;
-- uncertain: the outcome of some attempt is not known.
local function parse_claim(claim)
  local attempts, refusals, uncertain, lease_ms, token =
    string.match(claim or '', '^(%d+):(%d+):(%d):(%d+):(.*)$')
  if not attempts then
    return {attempts = 0, refusals = 0, uncertain = false, lease_ms = 0, token = ''}
  end
  return {
    attempts = tonumber(attempts), refusals = tonumber(refusals), uncertain = uncertain == '1',
    lease_ms = tonumber(lease_ms), token = token,
  }
end

local function format_claim(claim)
  return string.format('%d:%d:%d:%d:%s',
    claim.attempts, claim.refusals, claim.uncertain and 1 or 0, claim.lease_ms, claim.token)
end

-- Whether an entry is under the claim of that token, which stands last in the text.
local function is_claimed(text, token)
  return text and sub(text, -#token - 1) == ':' .. token
end

-- What is kept of an entry's claim once that ended: nothing, where no attempt was made.
local function end_claim(claims, id, claim)
  claim.token = ''
  if claim.attempts == 0 and not claim.uncertain then
    redis.call('HDEL', claims, id)
  else
    redis.call('HSET', claims, id, format_claim(claim))
  end
end

-- Put an entry back to wait in `index` until `due`, out of the place where it is. The new place comes
-- before the old one goes: a script that Redis stops half-way must not lose an entry.
local function put_back(index, due, place, member, claims, claim)
  if claim then end_claim(claims, id_of(member), claim) end
  redis.call('ZADD', index, due, member)
  if place and place ~= index then redis.call('ZREM', place, member) end
end

-- When an entry is due that goes back as it came; at once, where its record cannot be read. And how
-- many bytes it took to find out.
local function due_as_before(records, id, now)
  local record = redis.call('HGET', records, id)
  local header_end = header_end_of(record)
  return whole(header_end and due_of(record, header_end) or now), #(record or '')
end

-- An entry that can still be changed: its record and header_end, its member, place and score, and of its
-- claim what outlives a change, which is what is uncertain. Or nil, and the reply that says why not. All
-- that can fail here comes before the first write: nothing is rolled back.
local function entry_of(id, indexes, records, claims, dead_reasons, tombstones, tombstones_old)
  local record = redis.call('HGET', records, id)
  if not record then
    return nil, {was_handed_over(tombstones, tombstones_old, id) and 'handed_over' or 'not_found'}
  end
  local header_end, defect = header_end_of(record)
  if not header_end then return nil, {'unreadable', defect} end
  local member = member_of(record, header_end, id)
  local place, score = place_of(indexes, member)
  local due, _, leased, dead = unpack(indexes)
  -- Nobody claims what is in `due`; and what its list refused is there under a later score.
  if place == due and tonumber(score) == due_of(record, header_end) then
    return record, header_end, member, place, score
  end
  if place == leased and tonumber(score) > math.floor(clock_us() / 1000) then
    return nil, {'in_flight'}
  end
  if place == dead then redis.call('HLEN', dead_reasons) end
  local text = redis.call('HGET', claims, id)
  local claim = (text or place == leased) and parse_claim(text)
  if place == leased then
    -- A lease that ran out is an attempt whose outcome nobody knows.
    claim.attempts, claim.uncertain = claim.attempts + 1, true
  elseif claim and not claim.uncertain then
    claim.attempts = 0
  end
  if claim then claim.refusals = 0 end
  return record, header_end, member, place, score, claim
end

-- An entry cannot be handed over: it is dead; its record stays, and so does what is known.
local function bury(dead, dead_reasons, now, member, reason)
  redis.call('HSET', dead_reasons, id_of(member), reason)
  redis.call('ZADD', dead, whole(now), member)
end
