--[[ A batch: due entries of an index that a step takes, one after the other. hand_over and claim do this alike.

batch  index, lanes, max_bytes  as given; see lanes.lua
       members, fresh           from due_members; pace: of the overdue ones, or nil
       taken, spent             how many members were looked at, and how many overdue ones of those leave
       bytes                    read
       skips                    those that are too late, see late.lua
       parking                  those that are paused or laid aside, as ZADD takes them
       killed                   the dead: id, why, ...
]]

local function new_batch(index, lanes, limit, max_bytes, catch_up, last_ms)
  local batch = {
    index = index, lanes = lanes, max_bytes = max_bytes, taken = 0, spent = 0, bytes = 0, skips = new_skips(),
    parking = {}, killed = {},
  }
  if catch_up > 0 then
    batch.pace = pace_of(catch_up, lanes.now_us)
    batch.members, batch.fresh = paced_members(index, lanes.now, limit, batch.pace)
  else
    batch.members, batch.fresh = due_members(index, lanes.now, limit, last_ms)
  end
  return batch
end

-- Whether it ends here: by its bytes, or because the next entry is overdue and no more of those may leave.
local function is_full(batch)
  local pace = batch.pace
  return batch.bytes >= batch.max_bytes or pace and batch.taken >= batch.fresh and batch.spent >= pace.left
end

-- Entries that stay are written to their new place before the old one is cleared: if Redis stops the script half-way,
-- nothing is rolled back, and none may be lost.
local function end_batch(batch, owes)
  if #batch.skips.ids > 0 then leave_skipped(batch.skips, owes, batch.lanes.now_us) end
  if #batch.parking > 0 then
    make_untidy()
    redis.call('ZADD', keys.parked, unpack(batch.parking))
  end
  remove_taken(batch.index, batch.members, batch.fresh, batch.taken)
  if past.kept then write_history() end
end

-- Rare: most entries just leave.

local function die(batch, member, reason)
  bury(batch.lanes.now, member, reason)
  batch.killed[#batch.killed + 1], batch.killed[#batch.killed + 2] = id_of(member), reason
end

local function park(batch, lane, member, record, header_end)
  local parking = batch.parking
  parking[#parking + 1], parking[#parking + 2] = 0, parked_as(lane, record, header_end, member)
  excuse_before(lane, batch.lanes, id_of(member), record, header_end)
end

-- Lay an entry aside whose format this release does not know, for a scanner that does.
local function lay_aside(batch, member, record, header_end)
  local parking = batch.parking
  parking[#parking + 1], parking[#parking + 2] = 0, parked_as(format_lane(record), record, header_end, member)
end

-- Skip an entry with a late policy if it is too late; return whether it was. `pauses`: those that may hold it back.
local function is_skipped(batch, member, record, header_end, pauses)
  local id, lanes = id_of(member), batch.lanes
  local ms, from = too_late_by(lanes, record, header_end)
  if not ms then
    -- It may come back after the pause is forgotten.
    if #pauses > 0 then excuse(id, record, header_end, from) end
    return false
  end
  local message = whole_message(record, header_end, id, {}) or ''
  local how = parse_claim(redis.call('HGET', keys.claims, id)).uncertain and 'u' or 'c'
  note_skip(batch.skips, member, record, header_end, message, ms, how, lanes.now_us)
  return true
end
