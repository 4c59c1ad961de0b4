--[[ A shard that is being resharded is closed, level by level. Each script begins with a check of its own level: a line
`closed` in its header has it, unless that is 1, or 3 as it only reads. One of level 9 always runs.

meta   reshard -> at the meeting place, the phase of a resharding: see reshard.lua
       closed -> level, how many shards this is one of, how many the store has or will have, and the resharding's name;
                 blanks between
       ended -> the last resharding that has ended here: its late requests do nothing
level  1  refuses changes, but takes what became of tasks in flight
       2  refuses all changes
       3  refuses everything: its entries are elsewhere
       4  does so as well, and is being filled
]]
local CLOSED = '^(%d) (%d+) (%d+) (%S+)$'

-- Rare: a shard is closed only while it is resharded.

-- Parse `closed`: level, this number of shards, the other one, resharding; or nil.
local function parse_closed(text)
  if type(text) ~= 'string' then return nil end
  local level, ours, theirs, run = string.match(text, CLOSED)
  return tonumber(level), ours, theirs, run
end

-- The refusal of a script of this level, by `closed`; or nil.
local function refusal_of(level, closed)
  local now, ours, theirs = parse_closed(closed)
  if not now or now < level then return nil end
  return redis.error_reply((now < 3 and 'RESHARDING ' or 'RESHARDED ') .. ours .. ' ' .. theirs)
end
