-- Takes the oldest order of an operator for a worker. -> nil none | {id, order, 1 where it is too late}
--
-- KEYS orders
-- ARGV
--   answers       what the keys of results begin with
--   taken         what a result is meanwhile
--   answerKeptMs
--   lateMs        how old an order may be

-- include now

local first = redis.call('XRANGE', orders, '-', '+', 'COUNT', 1)[1]
if not first then return false end
redis.call('XDEL', orders, first[1])
redis.call('SET', answers .. first[1], taken, 'PX', answerKeptMs)
-- Ids of entries are of the clock of Redis, which tests do not move.
local ageMs = now() - clockOffsetMs - tonumber(string.match(first[1], '^%d+'))
return {first[1], first[2][2], ageMs > tonumber(lateMs) and 1 or 0}
