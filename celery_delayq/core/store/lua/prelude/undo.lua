--[[ What an undo of a cancel needs: of each cancelled entry a line that depends on nothing else in the store.

line  with a blank between two: when it was cancelled, us, 16 digits; the name of the bulk; place and ms, as load.lua has
      them; 1: it had its key, or 0; its claim, or '-'; the lengths of its error and of its record. Then a blank, the error,
      the record, and the template that it shares
      or only `revoked`: its id was sent to the workers, which would drop it

There are two generations of lines, as of tombstones; Redis forgets each once it is old. In `meta` is

undo_since  when the generation began, ms
]]
local LONGEST_LINE = 100000 -- bytes: templates are shared in the store, and not in lines

-- Rare: no line is kept unless a setting says so.

-- The line of an entry that is cancelled; or nil: it would be too long, or its template is gone. `cache`: templates.
local function line_of(call, entry, bulk, cache)
  local id, record, header_end, place = entry.id, entry.record, entry.header_end, entry.place
  local name, template, error, claim = template_of(record, header_end), '', '', entry.claim
  if name then
    if cache[name] == nil then cache[name] = redis.call('HGET', keys.templates, name) end
    template = cache[name]
  end
  if not template or #record + #template > LONGEST_LINE then return nil end
  local word = place == keys.refused and 'refused' or place == keys.dead and 'dead' or place == keys.behind and 'behind'
  local is_lapsed = place == keys.leased
  if entry.failed then error = redis.call('HGET', keys.errors, id) or '' end
  if claim and not is_lapsed then claim = parse_claim(redis.call('HGET', keys.claims, id)) end
  local attempts = claim and table.concat({claim.attempts, claim.refusals, claim.uncertain and 1 or 0}, ':')
  local extras = ends_in_extras(record, header_end) and extras_of(record, header_end)
  local has_key = extras and extras.key and holder_of(extras.key) == id
  return table.concat({
    whole(call.now_us), bulk, word or 'waiting', word and whole(entry.score) or 0, has_key and 1 or 0, attempts or '-',
    #error, #record, error .. record .. template,
  }, ' ')
end

-- Keep lines, {id, line, ...}, before their entries go. Nothing that fails here may keep a task from being cancelled.
local function keep_lines(call, lines, ms, most)
  if #lines == 0 then return end
  local since = redis.pcall('HGET', keys.meta, 'undo_since')
  local age = type(since) == 'string' and tonumber(since) and call.now - tonumber(since)
  local length = redis.pcall('HLEN', keys.undo)
  if type(length) ~= 'number' then return end
  if not age or age < 0 or age >= ms or length >= most then
    if type(redis.pcall('HSET', keys.meta, 'undo_since', whole(call.now))) ~= 'number' then return end
    if age and age >= 0 then pcall(make_older, keys.undo, keys.undo_old) end
  end
  redis.pcall('HSET', keys.undo, unpack(lines))
  redis.pcall('PEXPIRE', keys.undo, whole(ms))
end

-- The kept line of an id, or nil.
local function kept_line(id)
  return redis.call('HGET', keys.undo, id) or redis.call('HGET', keys.undo_old, id) or nil
end

-- Forget the line of an id.
local function drop_line(id)
  redis.call('HDEL', keys.undo, id)
  redis.call('HDEL', keys.undo_old, id)
end

-- An entry to bring back, from its line; nil: another program wrote it.
local function entry_in(id, line)
  local when, place, ms, named, claim, error_length, length, from =
    string.match(line, '^(%d+) %S+ (%l+) (%d+) ([01]) (%S+) (%d+) (%d+) ()')
  if not when then return nil end
  local record = sub(line, from + error_length, from + error_length + length - 1)
  local header_end = header_end_of(record)
  if not header_end then return nil end
  return {
    id = id, due = string.match(due_text(record, header_end), '%d+'), created = created_of(record, header_end),
    header = sub(record, 1, header_end), body = sub(record, header_end + FLAGS),
    template = sub(line, from + error_length + length), place = place, ms = ms, claim = claim == '-' and '' or claim,
    error = sub(line, from, from + error_length - 1), named = named, left_ms = math.floor(tonumber(when) / 1000),
  }
end
