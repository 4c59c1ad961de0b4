--[[ Extras that some entries have: a unique key, tags, a late policy.

extras  at the end of a record with one of the flags 1, 2 and 4:
        key, HELD and how it holds, if that is longer than its entry waits; NUL
                                                      empty: none
        policy, NUL                                   empty, or the grace period, ms, ':', and its start, if that is
                                                      after the due time: unix ms, 13 digits
        tag, NUL                                      for each; what begins with HELD here is of a later release, and stays
        the length of all that, in 4 digits

`holders` names the entry that has a key. It holds it while it waits. A leased or dead one gives way to the next, and
gets the key again if it comes back and the key is free; else its record loses the key. `tags` has `tag NUL member` of
each.

A key holds longer if its part says so (a dead entry's does not); each is a letter and ms:
        f  until the run has finished; but after the hand-over, or a worker's last word, no longer than so many ms
        w  at least so long after it was scheduled
        d  at least so long after it was delivered: a `w` that waited behind another holder; see held.lua
]]
local HELD = '\255' -- a byte that no key and no id has: those are UTF-8
local CHUNK = 1000 -- arguments of one command
local KEYED = 1 -- flag
local TAGGED = 2 -- flag

-- The last byte of a record's message.
local function message_end(record, header_end)
  if not ends_in_extras(record, header_end) then return -1 end
  return extras_start(record, header_end) - 1
end

-- Rare: most entries have none.

-- The extras of a record, or of a part with the same end; or nil.
local function extras_in(text, flags, from)
  if flags % EXTRAS == 0 then return nil end
  local tags, key, policy, rest = {}, string.match(text, '^([^%z]*)%z([^%z]*)%z()', extras_start(text, from))
  if flags % (2 * TAGGED) >= TAGGED then
    for tag in string.gmatch(sub(text, rest, -5), '([^%z]*)%z') do
      if sub(tag, 1, 1) ~= HELD then tags[#tags + 1] = tag end
    end
  end
  local hold
  if key and string.find(key, HELD, 1, true) then key, hold = string.match(key, '^(.-)' .. HELD .. '(.*)$') end
  return {key = key ~= '' and key, hold = hold, policy = policy ~= '' and policy, tags = tags}
end

local function extras_of(record, header_end)
  return extras_in(record, flags_of(record, header_end), header_end)
end

-- The same for a new record's part from the flags on.
local function extras_of_body(body)
  return extras_in(body, flags_of(body, 1 - FLAGS), 1 - FLAGS)
end

-- A record, or a part with the same end, without its key.
local function without_key(text, from)
  local start, flags = extras_start(text, from), flags_of(text, from) - KEYED
  local rest = sub(text, string.find(text, '\0', start, true), -5) -- with an empty key
  local extras = flags % EXTRAS > 0 and rest .. string.format('%04d', #rest) or ''
  return with_flags(sub(text, 1, start - 1) .. extras, from, flags)
end

-- The name for a key's fence and tombstone, among ids: those are UTF-8, which has no such byte.
local function name_of_key(key)
  return '\255' .. key
end

-- The id of the entry that has a key, or nil; once that has left, its delivery; and the member of the one behind it.
local function holder_of(key)
  local rows = redis.call('HMGET', keys.holders, key, name_of_key(key))
  local row, behind = rows[1], rows[2] or nil
  local at = row and string.find(row, HELD, 1, true)
  if at then return sub(row, 1, at - 1), sub(row, at + 1), behind end
  return row or nil, nil, behind
end

-- Whether the key of an entry that has left is still held.
local function is_key_held(key, now)
  return tonumber(redis.call('ZSCORE', keys.held, key) or 0) > now
end

-- Names one delivery of an entry, with all its attempts: LeasedEntry.hand_over.
local function delivery_of(record, header_end)
  return whole(number_of(order_of(record, header_end))) .. '.' .. whole(changed_of(record, header_end))
end

-- Index an entry before its record is written: if Redis stops the script half-way, there is too much, never too little.
local function index_extras(extras, id, member)
  if extras.key then redis.call('HSET', keys.holders, extras.key, id) end
  for _, tag in ipairs(extras.tags) do redis.call('ZADD', keys.tags, 0, tag .. '\0' .. member) end
end

-- Note the index entries and the history event of a leaving entry. Those of many entries are removed together.
-- `extras`: its extras, if they are known.
local function note_extras(leaving, id, member, record, header_end, extras)
  extras = extras or extras_of(record, header_end)
  if past.kept then note_leaving(leaving, told_by(record, header_end, id, extras and extras.key)) end
  if not extras then return end
  leaving.keyed, leaving.tagged = leaving.keyed or {}, leaving.tagged or {}
  local keyed, tagged = leaving.keyed, leaving.tagged
  if extras.key then
    local one = {key = extras.key, id = id, member = member, hold = extras.hold}
    if one.hold then
      one.created, one.delivery = created_of(record, header_end), delivery_of(record, header_end)
    end
    keyed[#keyed + 1] = one
  end
  for _, tag in ipairs(extras.tags) do tagged[#tagged + 1] = tag .. '\0' .. member end
end
