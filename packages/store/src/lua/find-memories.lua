-- The memories of an owner as a look-up ranks them; a turn waits for it. They are one JSON text, because Redis takes as long
-- to reply with eight hundred texts as to read them. Reading many takes most of the time, so their text is kept for the next
-- messages: until a memory is written, taken away, or expires.
-- -> {1 | 0 the person wants nothing remembered, JSON of [member, text, by, atMs, member, ...] of all tenants}
--
-- KEYS memories memory off lookUp
-- ARGV
--   many    more memories than that are kept as one text
--   keptMs  for so long

local isOff = redis.call('EXISTS', off)
local kept = redis.call('GET', lookUp)
if kept then return {isOff, kept} end
local found, at, firstMs = {}, 0, -1
for _, member in ipairs(redis.call('ZRANGE', memories, 0, -1)) do
  local values = redis.call('HMGET', memory .. ':' .. member, 'text', 'by', 'atMs')
  if values[1] then
    -- The one that was used least recently expires first.
    if at == 0 then firstMs = redis.call('PTTL', memory .. ':' .. member) end
    found[at + 1], found[at + 2], found[at + 3], found[at + 4] = member, values[1], values[2], values[3]
    at = at + 4
  else
    redis.call('ZREM', memories, member)
  end
end
local text = at == 0 and '[]' or cjson.encode(found)
if at > 4 * tonumber(many) then
  local ms = tonumber(keptMs)
  if firstMs >= 0 then ms = math.min(ms, firstMs + 1) end
  redis.call('SET', lookUp, text, 'PX', ms)
end
return {isOff, text}
