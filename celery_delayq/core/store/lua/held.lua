--[[ held: the holders of unique keys: of one key, or of those in `held` page by page, in the order of their times there.

text     key     only this key, wherever its holder is; empty: the keys of `held`
text     begins  of those, only keys that begin so
text     beyond  only those behind this key; empty: from the first one
text     score   its time in `held`, as it was returned
number   count   look at so many, 1 to 1000
number   most    return no more than so many, > 0

reply    last, score, found of key word

Returns  the last key that was looked at, and its time in `held`, ms; empty at the end. Of each key that an entry holds a
         word: waits | in_flight | left (its entry has left), with i the id; left also with d the delivery; u until when it
         holds it at the latest, ms; f the first such time, which its hand-over set, and t when it was delivered, ms, if
         that is known; and r, if it is held until its run has finished. All with b the id of the entry behind it, if any,
         and n when that one is due, ms
Cost     O(log N) a key that is looked at, and O(M), M keys with the time of `beyond`
Keeps    changes nothing
]]
local function word_of(name)
  local state, id, delivery, ends = hold_on_key(name)
  if not state then return nil end
  local word = state .. quoted('i' .. id)
  if state == 'left' then
    local stamp = find_tombstone(name_of_key(name)) or ''
    local when, first, run = string.match(stamp, '^.(%d%d%d%d%d%d%d%d%d%d%d%d%d)(%d*)(f?)$')
    word = word .. quoted('d' .. delivery) .. ':u' .. whole(ends) .. (when and ':t' .. when or '')
      .. (first and first ~= '' and ':f' .. first or '') .. (run == 'f' and ':r' or '')
  end
  local behind = select(3, holder_of(name))
  local due = behind and redis.call('ZSCORE', keys.behind, behind)
  return word .. (due and quoted('b' .. id_of(behind)) .. ':n' .. whole(due) or '')
end

if key ~= '' then
  local word = word_of(key)
  return {'', '', word and {key, word} or {}}
end
-- Where the keys behind `beyond` begin. Its time comes again if it has another one by now.
local function rank_beyond()
  local rank = redis.call('ZCOUNT', keys.held, '-inf', '(' .. score)
  if redis.call('ZSCORE', keys.held, beyond) ~= score then return rank end
  while true do
    for _, name in ipairs(redis.call('ZRANGE', keys.held, rank, rank + count - 1)) do
      rank = rank + 1
      if name == beyond then return rank end
    end
  end
end

local first = beyond ~= '' and rank_beyond() or 0
local rows, found = redis.call('ZRANGE', keys.held, first, first + count - 1, 'WITHSCORES'), {}
for at = 1, #rows, 2 do
  local name = rows[at]
  local word = sub(name, 1, #begins) == begins and word_of(name)
  if word then found[#found + 1], found[#found + 2] = name, word end
  if #found == 2 * most then return {name, rows[at + 1], found} end
end
if #rows < 2 * count then return {'', '', found} end
return {rows[#rows - 1], rows[#rows], found}
