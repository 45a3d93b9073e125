-- Writes a memory once per call. -> member that holds the text | 'off' | 'forgotten' it was written and taken away
--
-- KEYS memories memory forgotten off lookUp
-- ARGV
--   member  made from the call
--   tenant  what its members begin with
--   text
--   by      who said so
--   most    memories of an owner
--   ttlMs   after the last use; 0: for good

-- include now
-- include memories

if redis.call('EXISTS', off) == 1 then return 'off' end
if redis.call('ZSCORE', forgotten, member) then return 'forgotten' end
local least, count = nil, 0
for _, one in ipairs(living(tenant)) do
  if one.member == member or one.text == text then return one.member end
  local uses, usedAtMs = tonumber(one.uses), tonumber(one.usedAtMs)
  if not least or uses < least.uses or (uses == least.uses and usedAtMs < least.usedAtMs) then
    least = {member = one.member, uses = uses, usedAtMs = usedAtMs}
  end
  count = count + 1
end
if count >= tonumber(most) then drop(least.member) end
redis.call('DEL', lookUp)
local atMs = string.format('%.0f', now())
redis.call('HSET', keyOf(member), 'text', text, 'by', by, 'atMs', atMs, 'usedAtMs', atMs, 'uses', 0)
keep(member, atMs, ttlMs)
return member
