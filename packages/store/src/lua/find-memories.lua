-- The memories of an owner as a look-up ranks them; a turn waits for it. They are one JSON text, because Redis takes as long
-- to reply with eight hundred texts as to read them.
-- -> {1 | 0 the person wants nothing remembered, JSON of [member, text, by, atMs, member, ...]}
--
-- KEYS memories memory off
-- ARGV tenant

local found, at, prefix = {}, 0, tenant .. '.'
for _, member in ipairs(redis.call('ZRANGE', memories, 0, -1)) do
  if string.sub(member, 1, #prefix) == prefix then
    local values = redis.call('HMGET', memory .. ':' .. member, 'text', 'by', 'atMs')
    if values[1] then
      found[at + 1], found[at + 2], found[at + 3], found[at + 4] = member, values[1], values[2], values[3]
      at = at + 4
    else
      redis.call('ZREM', memories, member)
    end
  end
end
return {redis.call('EXISTS', off), at == 0 and '[]' or cjson.encode(found)}
