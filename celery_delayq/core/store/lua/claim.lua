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
         late; how many were parked or laid aside. Now is in us, uncertain 0 or 1
Cost     O(log N + M log N), M <= limit
Keeps    an entry is in one of `relay`, `parked` and `leased`
]]
local now_us = clock_us()
local token = asker .. ':' .. whole(now_us)

local lanes = new_lanes(now_us)
local batch = new_batch(keys.relay, lanes, limit, max_bytes, catch_up, last_ms)
local members = batch.members
if #members > 0 then make_untidy() end
local claimed, known, brought = {}, {}, {}
local ids, leases, attempts = {}, {}, {} -- arguments of HMGET, ZADD and HSET, one call each
local until_ms = whole(lanes.now + lease_ms)
local first = format_claim({attempts = 0, refusals = 0, lease_ms = lease_ms, token = token})
local unpaused = {}

-- Deal with an entry; return whether it is claimed.
local function take(member)
  local id = id_of(member)
  local record = redis.call('HGET', keys.records, id)
  local header_end, defect = header_end_of(record)
  batch.bytes = batch.bytes + #(record or '')
  if is_leftover(member, record, header_end) then return end
  if not header_end then return die(batch, member, defect) end
  if is_beyond(record) then return lay_aside(batch, member, record, header_end) end
  local pauses = lanes.any and pauses_of(lanes, record, header_end) or unpaused
  local lane = #pauses > 0 and (paused_lane(pauses) or full_lane(pauses, record, header_end))
  if lane then return park(batch, lane, member, record, header_end) end
  if has_flag(record, header_end, LATE_POLICY) and is_skipped(batch, member, record, header_end, pauses) then return end
  local shared = bring(template_of(record, header_end), brought)
  if not shared then return die(batch, member, 'template is gone') end
  if #pauses > 0 then take_turns(pauses, record, header_end) end
  batch.bytes = batch.bytes + shared
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

while batch.taken < #members and not is_full(batch) do
  local taken = batch.taken + 1
  batch.taken = taken
  if take(members[taken]) and taken > batch.fresh then batch.spent = batch.spent + 1 end
end
if batch.pace then spend(batch.pace, batch.spent) end
if #ids > 0 then
  for at, text in ipairs(redis.call('HMGET', keys.claims, unpack(ids))) do lease(at, text) end
  redis.call('ZADD', keys.leased, unpack(leases))
  redis.call('HSET', keys.claims, unpack(attempts))
end
if lanes.any then save_lanes(lanes) end
end_batch(batch, owes)
if #batch.skips.ids > 0 then turn_tombstones(lanes.now) end
return {
  now_us, claimed, table.concat(known, ' '), brought, batch.killed, batch.skips.told, #batch.parking / 2,
}
