-- -> {number of the first message that is read, messages, people}
--
-- KEYS state history who
-- ARGV
--   from  number of the first message that is wanted
--   most  messages

local base = tonumber(redis.call('HGET', state, 'historyBase') or 0)
local first = math.max(tonumber(from) - base, 0)
local messages = most == '0' and {} or redis.call('LRANGE', history, first, first + most - 1)
return {base + first, messages, redis.call('HGETALL', who)}
