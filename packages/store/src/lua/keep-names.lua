-- Stores names, and removes those that were stored longest ago when there are too many.
--
-- KEYS names byTime
-- ARGV
--   nowMs
--   most
--   entries...  an id and its name, of each

for at = 1, #entries, 2 do
  redis.call('HSET', names, entries[at], entries[at + 1])
  redis.call('ZADD', byTime, nowMs, entries[at])
end
local over = redis.call('ZCARD', byTime) - tonumber(most)
if over > 0 then
  for _, id in ipairs(redis.call('ZRANGE', byTime, 0, over - 1)) do redis.call('HDEL', names, id) end
  redis.call('ZREMRANGEBYRANK', byTime, 0, over - 1)
end
