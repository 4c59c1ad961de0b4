--[[ What few entries have: a unique key, tags, a late policy.

extras  at the end of a record that has one of the flags 1, 2 and 4:
        key, NUL                                      empty: it has none
        policy, NUL                                   empty, or for how many ms after its due time it may still
                                                      leave, ':', and since when that counts, if that is later:
                                                      unix ms, 13 digits
        tag, NUL                                      of each
        the length of all that, in 4 digits

`holders` names the entry that has a key. It holds it while it waits; one that is leased or dead gives way to
the next, and has it again when it comes back and nobody else took it. `tags` has `tag NUL member` of each.
]]
local CHUNK = 1000 -- arguments of one command
local KEYED = 1 -- flag
local TAGGED = 2 -- flag

-- The extras of a record, or of a part of it that ends as it does; or nil.
local function extras_in(text, flags, from)
  if flags % EXTRAS == 0 then return nil end
  local tags, key, policy, rest = {}, string.match(text, '^([^%z]*)%z([^%z]*)%z()', extras_start(text, from))
  if flags % (2 * TAGGED) >= TAGGED then
    for tag in string.gmatch(sub(text, rest, -5), '([^%z]*)%z') do tags[#tags + 1] = tag end
  end
  return {key = key ~= '' and key, policy = policy ~= '' and policy, tags = tags}
end

local function extras_of(record, header_end)
  return extras_in(record, flags_of(record, header_end), header_end)
end

-- The same of the part of a new record from its flags on.
local function extras_of_body(body)
  return extras_in(body, flags_of(body, 1 - FLAGS), 1 - FLAGS)
end

-- The last byte of a record's message.
local function message_end(record, header_end)
  if not ends_in_extras(record, header_end) then return -1 end
  return extras_start(record, header_end) - 1
end

-- Under what a key is fenced and remembered, among ids: those are UTF-8, which has no such byte.
local function name_of_key(key)
  return '\255' .. key
end

-- Write what leads to an entry, before its record: what Redis stops half-way leaves too much, and not too little.
local function index_extras(extras, id, member)
  if extras.key then redis.call('HSET', keys.holders, extras.key, id) end
  for _, tag in ipairs(extras.tags) do redis.call('ZADD', keys.tags, 0, tag .. '\0' .. member) end
end

-- Note what leads to an entry that leaves, and what its history will tell. Of many they are let go of together.
local function note_extras(leaving, id, member, record, header_end)
  local extras = extras_of(record, header_end)
  if past.kept then past.leaves(leaving, past.told_by(record, header_end, id, extras and extras.key)) end
  if not extras then return end
  leaving.keyed, leaving.tagged = leaving.keyed or {}, leaving.tagged or {}
  local keyed, tagged = leaving.keyed, leaving.tagged
  if extras.key then keyed[#keyed + 1] = {key = extras.key, id = id} end
  for _, tag in ipairs(extras.tags) do tagged[#tagged + 1] = tag .. '\0' .. member end
end

-- Let go of what note_extras noted; `stamp` is the tombstone of those that have a key, if they leave one.
local function drop_extras(leaving, stamp)
  for _, one in ipairs(leaving.keyed or {}) do
    if stamp then redis.call('HSET', keys.tombstones, name_of_key(one.key), stamp) end
    if one.key ~= leaving.kept_key and redis.call('HGET', keys.holders, one.key) == one.id then
      redis.call('HDEL', keys.holders, one.key)
    end
  end
  local tagged = leaving.tagged or {}
  for from = 1, #tagged, CHUNK do
    redis.call('ZREM', keys.tags, unpack(tagged, from, math.min(from + CHUNK - 1, #tagged)))
  end
end
