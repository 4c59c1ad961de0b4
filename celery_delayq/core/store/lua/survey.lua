--[[ survey: a slice of all entries: the common parts of those that share a template once, and their bodies.

text     cursor  the end of the last slice; 0 for the start
number   count   about how many records to look at, 1..1000

reply    cursor, size, dead, found, kinds of header queue name, whole of id record, unreadable of id record why,
         templates of name text

Returns  the next cursor, or 0 at the end; how many bytes were read; how many of them are dead, which it leaves out; of
         those that share a template, the place of their kind, from 1, due time, ms, id, and the body's JSON; of each
         kind the record's part up to the destination, the label of its queue, and the template's name; the other
         records; those that have a defect, dead or not; and the templates that all of these share
Cost     O(count)
Keeps    changes nothing; entries that stay throughout are found, some twice if Redis resizes the hash meanwhile
]]
local lines, kinds, whole_ones, unreadable, brought, bytes, dead = {}, {}, {}, {}, {}, 0, 0
local has_dead = redis.call('ZCARD', keys.dead) > 0
local places, known, taken = {}, 0, 0 -- the places of kinds, as text
local find = string.find

local function place_in(record, header_end)
  local header, likeness = sub(record, 1, header_end), likeness_of(record, header_end)
  local some = places[header]
  if not some then
    some = {}
    places[header] = some
  end
  if not some[likeness] then
    kinds[3 * known + 1], kinds[3 * known + 2] = header, queue_of(record, header_end)
    kinds[3 * known + 3] = template_of(record, header_end)
    known = known + 1
    some[likeness] = whole(known)
  end
  return some[likeness]
end

-- The body in a record that shares a template; or nil: it does not fit one, or is no line.
local function body_in(record, header_end)
  local at, left = header_end + DIFFERING, 5
  if is_beyond(record) then return nil end
  if sub(record, at, at + #USUAL - 1) == USUAL then at, left = at + #USUAL, 2 end
  for _ = 1, left do
    at = find(record, '\n', at, true)
    if not at then return nil end
    at = at + 1
  end
  local body = sub(record, at, message_end(record, header_end))
  return not find(body, '\n', 1, true) and body
end

local slice = redis.call('HSCAN', keys.records, cursor, 'COUNT', count)
local rows = slice[2]
for at = 1, #rows, 2 do
  local id, record = rows[at], rows[at + 1]
  local header_end, why = header_end_of(record)
  bytes = bytes + #record
  if not header_end and has_dead and redis.call('ZSCORE', keys.dead, RECORDLESS .. id) then
    dead = dead + 1
  elseif not header_end then
    local last = #unreadable
    unreadable[last + 1], unreadable[last + 2], unreadable[last + 3] = id, record, why
  elseif has_dead and redis.call('ZSCORE', keys.dead, member_of(record, header_end, id)) then
    dead = dead + 1
  else
    local name = template_of(record, header_end)
    local body = name and not find(id, '\n', 1, true) and body_in(record, header_end)
    if name and not brought[name] then bytes = bytes + (bring(name, brought) or 0) end
    if body then
      lines[taken + 1], lines[taken + 2] = place_in(record, header_end), due_text(record, header_end)
      lines[taken + 3], lines[taken + 4] = id, body
      taken = taken + 4
    else
      local last = #whole_ones
      whole_ones[last + 1], whole_ones[last + 2] = id, record
    end
  end
end
return {slice[1], bytes, dead, table.concat(lines, '\n'), kinds, whole_ones, unreadable, brought}
