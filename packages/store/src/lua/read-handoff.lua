-- -> {{id, entry, mac} or {id} when it is too long to be read}...}
--
-- KEYS handoff
-- ARGV
--   from      id of the first entry
--   count     how many at once
--   maxBytes  of an entry

local found = {}
for _, item in ipairs(redis.call('XRANGE', handoff, from, '+', 'COUNT', count)) do
  local fields = {}
  for i = 1, #item[2], 2 do fields[item[2][i]] = item[2][i + 1] end
  local entry, mac = fields.e or '', fields.m or ''
  if #entry > tonumber(maxBytes) or #mac > 128 then table.insert(found, {item[1]})
  else table.insert(found, {item[1], entry, mac}) end
end
return found
