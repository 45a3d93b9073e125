-- -> 1 | 0 it holds
--
-- KEYS rules byExpiry ofChat revoked
-- ARGV id

-- include now

local expiresAtMs = redis.call('ZSCORE', ofChat, id)
local holds = expiresAtMs and tonumber(expiresAtMs) > now()
if holds and redis.call('HEXISTS', revoked, id) == 0 then return 0 end
redis.call('HDEL', revoked, id)
redis.call('ZREM', ofChat, id)
redis.call('ZREM', byExpiry, id)
redis.call('HDEL', rules, id)
return 1
