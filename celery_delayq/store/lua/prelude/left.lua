--[[ What is remembered of entries that left. ]]
local TOMBSTONES = 10000 -- entries that a generation of `tombstones` holds; there are two

-- What is remembered of an entry that left: `stamp` ('h' handed over, 'c' cancelled, or 'u'
-- cancelled where a copy may have been delivered; and when), then of its record due time, time of
-- scheduling and operation. So a late cancel is told the truth, and a
-- call that is repeated because its reply was lost does not schedule again.
local function tombstone_of(stamp, record, header_end)
  return stamp .. sub(record, header_end + 7, header_end + 35) .. operation_of(record, header_end)
end

-- Whether this generation of `tombstones` ends with the `count` entries that leave now. (Then it also
-- stops at a foreign key in place of the older one, which `rotate` would drop.)
local function is_full(tombstones, tombstones_old, count)
  if redis.call('HLEN', tombstones) + count < TOMBSTONES then return false end
  redis.call('HLEN', tombstones_old)
  return true
end

local function rotate(tombstones, tombstones_old)
  -- Not left to RENAME, which frees ten thousand fields there and then: some 4 ms.
  redis.call('UNLINK', tombstones_old)
  redis.call('RENAME', tombstones, tombstones_old)
end

local function find_tombstone(tombstones, tombstones_old, id)
  return redis.call('HGET', tombstones, id) or redis.call('HGET', tombstones_old, id)
end

local function was_handed_over(tombstones, tombstones_old, id)
  local tombstone = find_tombstone(tombstones, tombstones_old, id)
  return tombstone and sub(tombstone, 1, 1) == 'h'
end
