--[[ Claims: facts about an entry, kept from one attempt to deliver it to the next. ]]
-- Whether an entry is under the claim with this token, which ends the text.
local function is_claimed(text, token)
  return text and sub(text, -#token - 1) == ':' .. token
end

local function format_claim(claim)
  return string.format('%d:%d:%d:%d:%s',
    claim.attempts, claim.refusals, claim.uncertain and 1 or 0, claim.lease_ms, claim.token)
end

-- Rare: most entries are tried once, and have no claim before.

-- Parse the claims field of an entry.
-- attempts: how often it was sent, or may have been; refusals: how often the broker declined it;
-- uncertain: the outcome of some attempt is not known.
local function parse_claim(claim)
  local attempts, refusals, uncertain, lease_ms, token =
    string.match(claim or '', '^(%d+):(%d+):(%d):(%d+):(.*)$')
  if not attempts then
    return {attempts = 0, refusals = 0, uncertain = false, lease_ms = 0, token = ''}
  end
  return {
    attempts = tonumber(attempts), refusals = tonumber(refusals), uncertain = uncertain == '1',
    lease_ms = tonumber(lease_ms), token = token,
  }
end

-- The facts about a claim; targets.lua explains the letters.
local function tries_in(claim)
  return (claim.attempts > 0 and ':a' .. whole(claim.attempts) or '')
    .. (claim.refusals > 0 and ':r' .. whole(claim.refusals) or '') .. (claim.uncertain and ':m' or '')
end

-- End an entry's claim: keep its counts, or nothing if there was no attempt.
local function end_claim(id, claim)
  claim.token = ''
  if claim.attempts == 0 and not claim.uncertain then
    redis.call('HDEL', keys.claims, id)
  else
    redis.call('HSET', keys.claims, id, format_claim(claim))
  end
end
