-- Wakes a suspended session whose wake-up time has come.
--
-- KEYS session dirty deadlines
-- ARGV sid
-- REPLY
--   accepted  flag     it was suspended
--   wakeGen   integer  generation to wake the session for, or 0

-- include wake

redis.call('ZREM', deadlines, sid .. '|')
local v = redis.call('HMGET', session, 'state', 'generation')
if v[1] ~= 'suspended' then return respond {wakeGen = 0} end
return respond {accepted = true, wakeGen = wake(v[2])}
