--[[ runs: the runs of recurring rules that wait, and what became of others.

rows...  rules  1 to 100 of them
         name   a rule's name
         ids    of runs of it, a blank between two: what became of these; or empty

reply   now, found of waiting fates

Returns  now, us; and of each rule its waiting runs, at most 100, a blank between two: of each its due time, ms, a colon; p
         if it is paused, b if it is behind another one, else s; a colon, and its id. And of each of the ids a word:
         scheduled | paused | in_flight | dead; or how it left, handed_over | skipped | cancelled | uncertain; or unknown
Cost     O(log N) a run; the caller bounds rules
Keeps    changes nothing
]]
local MOST_RUNS, MOST_LOOKS = 100, 1000 -- of a rule; users may give its tag to tasks of their own
local LEFT = {h = 'handed_over', s = 'skipped', c = 'cancelled', u = 'uncertain'}
local now_us = clock_us()
local lanes, found = new_lanes(now_us), {}

-- The due time of a run, its state, and whether it is behind another one; or nil: it is not there.
local function run_of(id)
  local record = redis.call('HGET', keys.records, id)
  local header_end = header_end_of(record)
  if not header_end then return nil end
  local place, _, there = place_of(member_of(record, header_end, id), record, header_end)
  local entry = {place = place, there = there, record = record, header_end = header_end}
  return due_of(record, header_end), state_of(entry, lanes), place == keys.behind
end

local function waiting_runs(name)
  local prefix, runs = 'every:' .. name .. '\0', {}
  local rows = redis.call('ZRANGEBYLEX', keys.tags, '[' .. prefix, '(every:' .. name .. '\1', 'LIMIT', 0, MOST_LOOKS)
  for _, row in ipairs(rows) do
    local id = id_of(sub(row, #prefix + 1))
    -- A UUID made of a name; a task of a user has a random one.
    if sub(id, 15, 15) == '5' and #runs < MOST_RUNS then
      local due, state, is_behind = run_of(id)
      if state == 'SCHEDULED' or state == 'PAUSED' then
        local kind = is_behind and 'b' or state == 'PAUSED' and 'p' or 's'
        runs[#runs + 1] = whole(due) .. ':' .. kind .. ':' .. id
      end
    end
  end
  return table.concat(runs, ' ')
end

local function fate_of(id)
  local _, state = run_of(id)
  if state then return string.lower(state) end
  return LEFT[sub(find_tombstone(id) or '', 1, 1)] or 'unknown'
end

for _, rule in ipairs(rules) do
  local fates = {}
  for id in string.gmatch(rule.ids, '%S+') do fates[#fates + 1] = fate_of(id) end
  found[#found + 1], found[#found + 2] = waiting_runs(rule.name), table.concat(fates, ' ')
end
return {now_us, found}
