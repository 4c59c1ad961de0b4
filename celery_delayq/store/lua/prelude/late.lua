--[[ Late policies: an entry that would leave too late does not leave at all.

policy  for how many ms after its due time it may still leave, ':', and since when that counts, if that is later:
        unix ms, 13 digits
]]

-- For how many ms an entry has been due, if that is more than its policy allows; or nil.
local function too_late_by(record, header_end, now)
  if string.byte(record, header_end + 43) % (2 * LATE_POLICY) < LATE_POLICY then return nil end
  local grace, excused = string.match(extras_of(record, header_end).policy or '', '^(%d+):(%d+)$')
  local due = due_of(record, header_end)
  if grace and now > math.max(due, tonumber(excused)) + tonumber(grace) then return now - due end
end

-- Let an entry's lateness count from now. It is no change of its owner's. Returns how many bytes were read.
local function excuse(records, id, now)
  local record = redis.call('HGET', records, id)
  local header_end = header_end_of(record)
  if not header_end or string.byte(record, header_end + 43) % (2 * LATE_POLICY) < LATE_POLICY then
    return #(record or '')
  end
  local policy = string.find(record, '\0', extras_start(record, header_end), true)
  local excused = string.match(record, '^%z%d+():' .. string.rep('%d', 13) .. '%z', policy)
  if not excused then return #record end
  redis.call('HSET', records, id, sub(record, 1, excused) .. string.format('%013.0f', now) .. sub(record, excused + 14))
  return #record
end

-- What a step skips; it is what `depart` is given.
local function new_skips()
  return {ids = {}, shared = {}, claimed = true, failed = true, young = {}, owed = {}, told = {}}
end

-- Note that an entry is skipped, which has been due for `ms`; how: c, or u where a copy may have been delivered.
local function note_skip(skips, member, record, header_end, message, ms, how, now_us, keys)
  local id, name = id_of(member), template_of(record, header_end)
  if #skips.ids == 0 then
    check_types({keys.outbox, keys.tags}, {keys.outbox_messages, keys.template_uses, keys.fences, keys.holders})
    skips.recent = recent_of(now_us, keys.meta)
  end
  local why = 'skipped: ' .. whole(math.floor(ms / 1000)) .. ' s late'
  skips.ids[#skips.ids + 1] = id
  skips.told[#skips.told + 1], skips.told[#skips.told + 2] = id, why
  skips.owed[#skips.owed + 1] = {id = id, how = how, message = message, why = why}
  if name then skips.shared[name] = (skips.shared[name] or 0) + 1 end
  note_young(skips.young, skips.recent, id, record, header_end)
  note_extras(skips, id, member, record, header_end)
end

-- They leave; the caller clears their places. REVOKED is owed for them where `owes`, from now on, as nobody waits
-- to store it.
local function leave_skipped(skips, owes, now_us, keys)
  if #skips.ids == 0 then return end
  local from_now_on = {now_us = now_us, timeout = 0}
  fence_young(skips.young, keys.fences, now_us)
  for _, one in ipairs(owes and skips.owed or {}) do
    owe(keys.outbox, keys.outbox_messages, from_now_on, one.id, one.how, one.message, one.why)
  end
  depart(skips, 's', math.floor(now_us / 1000), keys)
end
