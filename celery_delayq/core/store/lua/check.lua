--[[ check: look at a slice of one key for inconsistencies.

text     part    due | relay | leased | dead | refused | behind | parked | records | holders | tags | templates |
                 template_uses | claims | errors | outbox | outbox_messages | meta
text     cursor  the end of the last slice; 0 for the start
text     count   about how many fields to look at, 1..1000

reply    cursor, found of kind id field, last, now, shared of name value changed, size

Returns  the next cursor, or 0 at the end; the findings; the last insertion number; now, us; facts about templates: from
         records, the template's name, the member, its last change; from template_uses, the name, the count, ''; and
         how many bytes were read
Cost     O(count * log N)
Keeps    changes nothing; one step looks at everything that concerns a finding, so entries in motion are no findings
]]
local IS_HASH = {
  [keys.records] = true, [keys.holders] = true, [keys.templates] = true, [keys.template_uses] = true,
  [keys.claims] = true, [keys.errors] = true, [keys.outbox_messages] = true, [keys.meta] = true,
}
local index = keys[part]
local found, shared, field = {}, {}, nil

local function report(kind, id)
  local at = #found
  found[at + 1], found[at + 2], found[at + 3] = kind, id, field
end

local function share(name, value, changed)
  local at = #shared
  shared[at + 1], shared[at + 2], shared[at + 3] = name, value, changed
end

local look = inconsistencies.look(report, share)
local slice = redis.call(IS_HASH[index] and 'HSCAN' or 'ZSCAN', index, cursor, 'COUNT', count)
for at = 1, #slice[2], 2 do
  field = slice[2][at]
  look.bytes = look.bytes + #field + #slice[2][at + 1]
  inconsistencies.at(part, field, slice[2][at + 1], look)
end
return {slice[1], found, redis.call('HGET', keys.meta, 'seq') or '0', clock_us(), shared, look.bytes}
