--[[ Messages, put together from a record and the template that it shares. ]]
local LAST = 253402214400000 -- an expiry is no later: 9999-12-31 in UTC, a day that each zone can name
local HEX = string.rep('%02x', 12)

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
  if not name then return sub(record, header_end + 57) .. due .. '}}' end
  local line, defect = lines_of(templates, name, cache)
  if not line then return nil, defect end
  -- Not by a pattern, which looks at every byte by itself.
  local first, find = header_end + 69, string.find
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
  return line[1] .. id .. line[2] .. id .. sub(record, header_end + 20, header_end + 35) .. line[3] .. sub(record, body + 1)
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
