--[[ claim: lease due entries to a scanner that publishes them through the broker.

text     asker      the claiming scanner and its number, never used before. With now in us after it, the fencing
                    token: so a claim that arrives twice has two tokens
number   lease_ms   how long the caller may hold its claim, > 0
number   limit      most entries to claim, 1..1000
number   max_bytes  stop after the entry that reaches so many bytes, > 0
number   catch_up   how many overdue entries may leave a second; 0: no limit
flag     owes       1: REVOKED must be stored for entries that are too late; or 0
number   last_ms    when the caller took its last batch, ms; 0: never

reply    now, claimed of member record, known in words of header_end attempts refusals uncertain,
         templates of name text, dead of id why, skipped of id why, parked

Returns  the claimed entries, facts about each, and the templates that they share; the dead entries; those skipped as too
         late; how many were parked as paused. Now is in us, uncertain 0 or 1
Cost     O(log N + M log N), M <= limit
Keeps    an entry is in one of `relay`, `parked` and `leased`
]]
local now_us = clock_us()
local now = math.floor(now_us / 1000)
local token = asker .. ':' .. whole(now_us)

local pace = pace_of(catch_up, now_us)
local members, fresh = paced_members(keys.relay, now, limit, pace, last_ms)
if #members > 0 then make_untidy() end
local lanes = new_lanes(now_us)
local claimed, known, brought, killed = {}, {}, {}, {}
local parking, skips = {}, new_skips()
local ids, leases, attempts = {}, {}, {} -- arguments of HMGET, ZADD and HSET, one call each
local taken, bytes, spent = 0, 0, 0
local until_ms = whole(now + lease_ms)
local first = format_claim({attempts = 0, refusals = 0, lease_ms = lease_ms, token = token})

local function die(member, id, reason)
  bury(now, member, reason)
  killed[#killed + 1], killed[#killed + 2] = id, reason
end

local function park(lane, member, record, header_end)
  parking[#parking + 1], parking[#parking + 2] = 0, parked_as(lane, record, header_end, member)
  excuse_before(lane, lanes, id_of(member), record, header_end)
end

-- Skip an entry if it is too late; return whether it was.
local function is_skipped(member, id, record, header_end, pauses)
  local ms, from = too_late_by(lanes, record, header_end)
  if not ms then
    -- It may come back after the pause is forgotten.
    if #pauses > 0 then excuse(id, record, header_end, from) end
    return false
  end
  local line = lines_for(record, header_end, {})
  local message = line ~= nil and message_of(record, header_end, id, line) or ''
  local how = parse_claim(redis.call('HGET', keys.claims, id)).uncertain and 'u' or 'c'
  note_skip(skips, member, record, header_end, message, ms, how, now_us)
  return true
end

-- Deal with an entry; return whether it is claimed.
local function take(member)
  local id = id_of(member)
  local record = redis.call('HGET', keys.records, id)
  local header_end, defect = header_end_of(record)
  bytes = bytes + #(record or '')
  if is_leftover(member, record, header_end) then return end
  if not header_end then return die(member, id, defect) end
  local pauses = pauses_of(lanes, record, header_end)
  local lane = paused_lane(pauses) or full_lane(pauses, record, header_end)
  if lane then return park(lane, member, record, header_end) end
  if is_skipped(member, id, record, header_end, pauses) then return end
  local shared = bring(template_of(record, header_end), brought)
  if not shared then return die(member, id, 'template is gone') end
  take_turns(pauses, record, header_end)
  bytes = bytes + shared
  local at = #claimed
  claimed[at + 1], claimed[at + 2] = member, record
  leases[at + 1], leases[at + 2] = until_ms, member
  known[#known + 1] = header_end
  ids[#ids + 1] = id
  return true
end

-- Most entries are claimed for the first time, and have no claim yet.
local function lease(at, text)
  local numbers = '0 0 0'
  if text then
    local claim = parse_claim(text)
    numbers = claim.attempts .. ' ' .. claim.refusals .. (claim.uncertain and ' 1' or ' 0')
    claim.lease_ms, claim.token = lease_ms, token
    text = format_claim(claim)
  end
  known[at] = known[at] .. ' ' .. numbers
  attempts[at * 2 - 1], attempts[at * 2] = ids[at], text or first
end

while taken < #members and bytes < max_bytes and not (pace and taken >= fresh and spent >= pace.left) do
  taken = taken + 1
  if take(members[taken]) and taken > fresh then spent = spent + 1 end
end
if pace then spend(pace, spent) end
if #ids > 0 then
  for at, text in ipairs(redis.call('HMGET', keys.claims, unpack(ids))) do lease(at, text) end
  redis.call('ZADD', keys.leased, unpack(leases))
  redis.call('HSET', keys.claims, unpack(attempts))
end
leave_skipped(skips, owes, now_us)
if #parking > 0 then redis.call('ZADD', keys.parked, unpack(parking)) end
save_lanes(lanes)
remove_taken(keys.relay, members, fresh, taken)
past.write()
if #skips.ids > 0 then turn_tombstones(now) end
return {now_us, claimed, table.concat(known, ' '), brought, killed, skips.told, #parking / 2}
