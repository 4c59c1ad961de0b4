--[[ Inconsistencies of the store: `check` looks for them, and `repair` looks again before it does anything.

part    a key of the store, by its name
field   one of its fields or members
kind    the inconsistency, in one word: see contrib/care/check.py
look    shared by one step: now, seq (the last insertion number, or nil), bytes (of records read so far),
        templates (name -> whether it can be read), and two functions: report, given a kind and an id, and share, given
        facts about templates
]]
local inconsistencies = {
  LAST = 2^47 - 2^40, -- insertion numbers have 47 bits
}

function inconsistencies.look(report, share)
  return {
    now = math.floor(clock_us() / 1000), seq = last_number(redis.call('HGET', keys.meta, 'seq')),
    bytes = 0, report = report, share = share, templates = {},
  }
end

-- Whether a lane is paused, or coming back, or is that of a format.
function inconsistencies.is_lane(lane)
  if sub(lane, 1, 1) == 'f' then return true end
  local pause = parse_pause(redis.call('HGET', keys.paused, lane))
  if pause and pause.state == 'p' then return true end
  for other in string.gmatch(redis.call('HGET', keys.paused, RETURNING) or '', EACH_LANE) do
    if other == lane then return true end
  end
  return false
end

function inconsistencies.place(part, there, look)
  local member = part == 'parked' and parked_member(there) or there
  local id = id_of(member)
  local record = redis.call('HGET', keys.records, id)
  look.bytes = look.bytes + #(record or '')
  if not record then return look.report('place_without_record', id) end
  local header_end = header_end_of(record)
  if not header_end then return end -- reported as a record
  if member_of(record, header_end, id) ~= member then return look.report('second_place', id) end
  local place, _, as = place_of(member, record, header_end)
  if place ~= keys[part] or as ~= there then return look.report('second_place', id) end
  if part == 'parked' and not inconsistencies.is_lane(parked_lane(there)) then
    look.report('record_without_place', id)
  end
end

-- The extras of an entry, and its member, or nil; and whether there is a record that cannot be read: one of a later
-- version may have any key and tag.
function inconsistencies.extras_at(id, look)
  local record = redis.call('HGET', keys.records, id)
  look.bytes = look.bytes + #(record or '')
  local header_end = header_end_of(record)
  if header_end then return extras_of(record, header_end), member_of(record, header_end, id) end
  return nil, nil, record ~= false
end

-- The entry behind the holder of a key.
function inconsistencies.behind(key, member, look)
  local is_there = redis.call('ZSCORE', keys.behind, member) and redis.call('HEXISTS', keys.records, id_of(member)) == 1
  if not is_there then look.report('wrong_key', key) end
end

function inconsistencies.holder(key, look)
  local id, delivery = holder_of(key)
  if delivery and redis.call('ZSCORE', keys.held, key) then return end
  local extras, _, is_unreadable = inconsistencies.extras_at(id, look)
  if not is_unreadable and (not extras or extras.key ~= key) then look.report('wrong_key', key) end
end

function inconsistencies.tag(there, look)
  local id = id_of(sub(there, (string.find(there, '%z') or 0) + 1))
  local extras, member, is_unreadable = inconsistencies.extras_at(id, look)
  if is_unreadable then return end
  for _, tag in ipairs(extras and extras.tags or {}) do
    if tag .. '\0' .. member == there then return end
  end
  look.report('wrong_tag', id)
end

-- Whether a template that a record shares can be read.
function inconsistencies.is_template(name, look)
  if look.templates[name] == nil then look.templates[name] = not not text_of(name) end
  return look.templates[name]
end

function inconsistencies.record(id, record, look)
  local header_end = header_end_of(record)
  if not header_end then return look.report('unreadable_record', id) end
  local member = member_of(record, header_end, id)
  -- A number is taken before a record is written, so none is later than the last. One near the end of the range is from
  -- a damaged record; numbers could not continue above it for long.
  local number = serial_of(member)
  if look.seq and number > look.seq and number < inconsistencies.LAST then look.report('number_too_low', 'seq') end
  local place = place_of(member, record, header_end)
  if not place then look.report('record_without_place', id) end
  local extras = extras_of(record, header_end)
  for _, tag in ipairs(extras and extras.tags or {}) do
    if not redis.call('ZSCORE', keys.tags, tag .. '\0' .. member) then look.report('wrong_tag', id) end
  end
  local key = extras and extras.key
  if place == keys.behind and not (key and select(3, holder_of(key)) == member and redis.call('ZSCORE', keys.held, key)) then
    look.report('wrong_key', id)
  end
  -- A leased or dead entry holds no key; one without a place gets it along with a place.
  local waits = place and place ~= keys.leased and place ~= keys.behind and place ~= keys.dead
  if waits and key and redis.call('HGET', keys.holders, key) ~= id and not other_holder(key, id) then
    look.report('wrong_key', id)
  end
  local name = template_of(record, header_end)
  if not name then return end
  look.share(name, member, changed_bytes(record, header_end))
  if not inconsistencies.is_template(name, look) then look.report('unreadable_record', id) end
end

-- Look for the inconsistencies of a field of `part`; `check` looks for the same there.
function inconsistencies.at(part, field, value, look)
  if part == 'records' then
    inconsistencies.record(field, value, look)
  elseif part == 'holders' then
    local is_behind = sub(field, 1, 1) == HELD
    if is_behind then inconsistencies.behind(sub(field, 2), value, look) else inconsistencies.holder(field, look) end
  elseif part == 'tags' then
    inconsistencies.tag(field, look)
  elseif part == 'templates' then
    if redis.call('HEXISTS', keys.template_uses, field) == 0 then look.report('wrong_count', field) end
  elseif part == 'template_uses' then
    look.share(field, value, '')
  elseif part == 'claims' then
    if redis.call('HEXISTS', keys.records, field) == 0 then look.report('leftover', field) end
  elseif part == 'errors' then
    if redis.call('HEXISTS', keys.records, field) == 0 and not redis.call('ZSCORE', keys.dead, RECORDLESS .. field) then
      look.report('leftover', field)
    end
  elseif part == 'outbox' then
    if redis.call('HEXISTS', keys.outbox_messages, field) == 0 then look.report('owed_revoked', field) end
  elseif part == 'outbox_messages' then
    if not redis.call('ZSCORE', keys.outbox, field) then look.report('owed_revoked', field) end
  elseif part == 'meta' then
    if field == 'seq' and not look.seq then look.report('number_too_low', field) end
  else
    inconsistencies.place(part, field, look)
  end
end
