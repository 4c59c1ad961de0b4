--[[ What an undo needs: of each cancelled entry a line that depends on nothing else in the store; and of each entry that a
change of many moved, a line under \255 and its id.

line  with a blank between two: when it was cancelled, us, 16 digits; the name of the bulk; place and ms, as load.lua has
      them; 1: it had its key, or 0; its claim, or '-'; the lengths of its error and of its record. Then a blank, the error,
      the record, and the template that it shares
      or only `revoked`: its id was sent to the workers, which would drop it
      of a move: when it was moved, us; the name of the bulk; `moved`; its due time before, ms; and its last change then, us.
      As long as that is its last change, an undo moves it back

There are two generations of lines, as of tombstones; Redis forgets each once it is old. Processes may have different
settings. The largest of those with which a line was written holds for all lines of its generation, and for the generation
after it, as that ends the older one. So no process throws away what another one keeps. In `meta` is

undo_since  when the generation began, ms; the largest setting in it, how long, ms, and how many lines; and the same of the
            generation before

Of each bulk, `undo_bulks` has how many of its entries are not back. The lines of a bulk can go before this number does:
there are twice as many in a generation, and they last twice as long. So an undo can tell how many it does not bring back.
]]
local MOVED = '\255' -- no id begins with this byte
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

-- How long, ms, and how many at least, a generation keeps its lines; after its end if it is over.
local function begin_lines(call, ms, most)
  local text = redis.pcall('HGET', keys.meta, 'undo_since')
  local numbers = {}
  for number in string.gmatch(type(text) == 'string' and text or '', '%d+') do numbers[#numbers + 1] = tonumber(number) end
  local since, its_ms, its_most, before_ms, before_most = unpack(numbers)
  local length = redis.pcall('HLEN', keys.undo)
  if type(length) ~= 'number' then return nil end
  local is_known = before_most and since <= call.now
  local lasts = is_known and math.max(ms, its_ms, before_ms) or ms
  local lines = is_known and math.max(most, its_most, before_most) or most
  local is_over = not is_known or call.now - since >= lasts or length >= lines
  if is_over then
    before_ms, before_most, its_ms, its_most, since = its_ms or ms, its_most or most, ms, most, call.now
  end
  local now = {since, math.max(ms, its_ms), math.max(most, its_most), before_ms, before_most}
  for at, number in ipairs(now) do now[at] = whole(number) end
  local kept = table.concat(now, ' ')
  if kept ~= text and type(redis.pcall('HSET', keys.meta, 'undo_since', kept)) ~= 'number' then return nil end
  if is_over and is_known then pcall(make_older, keys.undo, keys.undo_old) end
  return lasts, lines
end

-- Count entries of a bulk that were cancelled.
local function count_cancelled(bulk, count, lasts, lines)
  local length = redis.pcall('HLEN', keys.undo_bulks)
  if type(length) ~= 'number' then return end
  if length >= 2 * lines then pcall(make_older, keys.undo_bulks, keys.undo_bulks_old) end
  local is_there = redis.call('HEXISTS', keys.undo_bulks, bulk) == 1
  local before = not is_there and redis.pcall('HGET', keys.undo_bulks_old, bulk)
  redis.pcall('HINCRBY', keys.undo_bulks, bulk, whole(count + (type(before) == 'string' and tonumber(before) or 0)))
  redis.pcall('PEXPIRE', keys.undo_bulks, whole(2 * lasts))
end

-- Keep lines, {id, line, ...}, before their entries go. Nothing that fails here may keep a task from being cancelled.
-- `bulk`: the name of the bulk of which so many entries are cancelled, or '-'.
local function keep_lines(call, lines, ms, most, bulk, count)
  if count == 0 then return end
  local lasts, number = begin_lines(call, ms, most)
  if not lasts then return end
  if #lines > 0 then
    redis.pcall('HSET', keys.undo, unpack(lines))
    redis.pcall('PEXPIRE', keys.undo, whole(lasts))
  end
  if bulk ~= '-' then count_cancelled(bulk, count, lasts, number) end
end

-- Where an entry was before this bulk moved it, if nothing has changed it since: the due time, ms, and whether it was over
-- already; or nil.
local function moved_from(entry, bulk)
  local line = redis.call('HGET', keys.undo, MOVED .. entry.id) or redis.call('HGET', keys.undo_old, MOVED .. entry.id) or ''
  local when, its, due, changed = string.match(line, '^(%d+) (%S+) moved (%d+) (%d+)$')
  if its ~= bulk or tonumber(changed) ~= changed_of(entry.record, entry.header_end) then return nil end
  return tonumber(due), tonumber(due) * 1000 <= tonumber(when)
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

-- Where the number of a bulk stands, and it; or nil.
local function left_of(bulk)
  for _, key in ipairs({keys.undo_bulks, keys.undo_bulks_old}) do
    local left = redis.call('HGET', key, bulk)
    if left then return key, tonumber(left) end
  end
end

-- Count an entry of a bulk that is back.
local function count_back(bulk)
  local key = left_of(bulk)
  if key then redis.pcall('HINCRBY', key, bulk, -1) end
end

-- An entry to bring back, from its line; nil: another program wrote it.
local function entry_in(id, line)
  local when, bulk, place, ms, named, claim, error_length, length, from =
    string.match(line, '^(%d+) (%S+) (%l+) (%d+) ([01]) (%S+) (%d+) (%d+) ()')
  if not when then return nil end
  local record = sub(line, from + error_length, from + error_length + length - 1)
  local header_end = header_end_of(record)
  if not header_end then return nil end
  return {
    id = id, due = string.match(due_text(record, header_end), '%d+'), created = created_of(record, header_end),
    header = sub(record, 1, header_end), body = sub(record, header_end + FLAGS),
    template = sub(line, from + error_length + length), place = place, ms = ms, claim = claim == '-' and '' or claim,
    error = sub(line, from, from + error_length - 1), named = named, left_ms = math.floor(tonumber(when) / 1000),
    bulk = bulk, when = when, record = record,
  }
end
