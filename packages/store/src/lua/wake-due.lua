-- Wakes a suspended session whose wake-up time has come. -> {woken, wakeGen}
--
-- KEYS session dirty deadlines
-- ARGV sid

-- include wake

redis.call('ZREM', deadlines, sid .. '|')
local v = redis.call('HMGET', session, 'state', 'generation')
if v[1] ~= 'suspended' then return {0, 0} end
return {1, wake(v[2])}
