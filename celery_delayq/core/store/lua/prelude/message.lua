--[[ Messages, put together from a record and the template that it shares. ]]
local LAST = 253402214400000 -- the latest expiry: 9999-12-31 in UTC, a day that exists in each time zone
local USUAL = '\nnull\nnull\n' -- its own root, no parent, no expiry: the usual beginning of a record's values
local MISFIT = 'record does not fit its template'

-- The lines of a template's text, or nil. (Not by gmatch, which looks at each byte by itself.)
local function split_lines(text)
  local lines = {}
  local from, to = 1, string.find(text, '\n', 1, true)
  while to do
    lines[#lines + 1] = sub(text, from, to - 1)
    from, to = to + 1, string.find(text, '\n', to + 1, true)
  end
  lines[#lines + 1] = sub(text, from)
  if #lines ~= 10 then return nil end
  lines.front, lines.back = lines[5] .. '"', '"' .. lines[6] .. 'null' .. lines[7] .. 'null' .. lines[8]
  return lines
end

-- The text of a template; or nil, and its defect.
local function text_of(name)
  local text = redis.call('HGET', keys.templates, name)
  if not text then return nil, 'template is gone' end
  -- fakeredis has no sha1hex.
  local hash = redis.sha1hex and sub(redis.sha1hex(text), 1, 24)
  if hash and hash ~= string.format('%02x%02x%02x%02x%02x%02x%02x%02x%02x%02x%02x%02x', string.byte(name, 1, 12)) then
    return nil, 'template is damaged'
  end
  return text
end

-- The lines of a template, kept in `cache` for the length of a script; or nil, and its defect.
local function lines_of(name, cache)
  if cache[name] then return cache[name] end
  local text, why = text_of(name)
  if not text then return nil, why end
  cache[name] = split_lines(text)
  if not cache[name] then return nil, MISFIT end
  return cache[name]
end

-- The lines of the template that a record shares, or false if it shares none; or nil, and the defect.
local function lines_for(record, header_end, cache)
  local name = template_of(record, header_end)
  if not name then return false end
  return lines_of(name, cache)
end

-- The message of a record as kombu would have pushed it; `line`: from lines_for; `last`: its last byte, if that is known.
-- Or nil, and the defect. (Not by a pattern, which looks at each byte by itself.)
local function message_of(record, header_end, id, line, last)
  local due = due_text(record, header_end)
  last = last or message_end(record, header_end)
  if not line then return sub(record, header_end + MESSAGE, last) .. due .. '}}' end
  local find, front, root, back = string.find, nil, nil, nil
  local args = header_end + DIFFERING
  if sub(record, args, args + #USUAL - 1) == USUAL then
    args, front, root, back = args + #USUAL, line.front, id, line.back
  else
    local parent = find(record, '\n', args, true)
    local expiry = parent and find(record, '\n', parent + 1, true)
    local ends = expiry and find(record, '\n', expiry + 1, true)
    local expires = ends and sub(record, expiry + 1, ends - 1)
    if expires and expires ~= 'null' then expires = expiry_of(expires, due) end
    if not expires then return nil, MISFIT end
    front, root = line[5], sub(record, args, parent - 1)
    if root == '' then root = '"' .. id .. '"' end
    back = line[6] .. sub(record, parent + 1, expiry - 1) .. line[7] .. expires .. line[8]
    args = ends + 1
  end
  local kwargs = find(record, '\n', args, true)
  local body = kwargs and find(record, '\n', kwargs + 1, true)
  if not body or not back then return nil, MISFIT end
  return line[1] .. id .. line[2] .. id .. created_of(record, header_end) .. line[3]
    .. sub(record, body + 1, last) .. line[4] .. id .. front .. root .. back .. sub(record, args, kwargs - 1)
    .. line[9] .. sub(record, kwargs + 1, body - 1) .. line[10] .. due .. '}}'
end

-- A record's fixed expiry, in its message's words; or nil: never, or relative to its due time. In a message, Celery's
-- own two headers stand side by side, and in a user's text each quote has a backslash.
local function fixed_expiry(record, header_end)
  local at
  if is_beyond(record) then return nil end
  if template_of(record, header_end) then
    if part_of(record, header_end, DIFFERING, DIFFERING + #USUAL) == USUAL then return nil end
    at = string.find(record, '\n', header_end + DIFFERING, true)
    at = at and string.find(record, '\n', at + 1, true)
    at = at and sub(record, at + 1, at + 1) == '"' and at + 1
  else
    at = select(2, string.find(record, '"eta": null, "expires": "', header_end + MESSAGE, true))
  end
  return at and string.match(sub(record, at + 1, at + 64), '^([^"]*)"')
end

-- `count` records that shared a template are gone; the last one removes it. If the count is no number, the template
-- stays: the entries have left, so there must be no error.
local function drop_template(name, count)
  local left = redis.pcall('HINCRBY', keys.template_uses, name, -count)
  if type(left) == 'number' and left <= 0 then
    redis.call('HDEL', keys.template_uses, name)
    redis.call('HDEL', keys.templates, name)
  end
end

-- The message of a record to be delivered: with core/message/headers.py's header if its key is held
-- until the run has finished.
local function delivered_message(record, header_end, id, line)
  local message, defect = message_of(record, header_end, id, line)
  local extras = message and has_flag(record, header_end, KEYED) and extras_of(record, header_end)
  local ms = extras and extras.key and string.match(extras.hold or '', '^f(%d+)')
  if not ms then return message, defect end
  return sub(message, 1, -3) .. ', "delayq_hold": {"id": ' .. json_text(id) .. ', "key": ' .. json_text(extras.key)
    .. ', "delivery": "' .. delivery_of(record, header_end) .. '", "ms": ' .. ms .. '}}}'
end

-- Add a shared template to those sent along, {name, text, ...}, each once. Return its bytes, or false if it is gone.
local function bring(name, brought)
  if not name or brought[name] then return 0 end
  local text = redis.call('HGET', keys.templates, name)
  if not text then return false end
  brought[name] = true
  brought[#brought + 1], brought[#brought + 2] = name, text
  return #text
end

-- Rare: most tasks do not expire, and only some steps need whole messages.

-- The message of a record, which may share a template; or nil: it cannot be put together.
local function whole_message(record, header_end, id, cache)
  if is_beyond(record) then return nil end
  local line = lines_for(record, header_end, cache)
  return line ~= nil and message_of(record, header_end, id, line) or nil
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

-- An expiry as a message has it. One relative to the due time moves with it.
local function expiry_of(expires, due)
  if not string.find(expires, '^[+-]') then return expires end
  if not string.find(expires, '^[+-]%d+$') then return nil end
  return iso_of(math.max(0, math.min(tonumber(due) + tonumber(expires), LAST)))
end

-- Text in JSON.
local function json_text(text)
  return '"' .. string.gsub(text, '[%c"\\]', function(one) return string.format('\\u%04x', string.byte(one)) end) .. '"'
end
