-- KEYS count
-- ARGV ttlMs

local calls = redis.call('INCR', count)
if calls == 1 then redis.call('PEXPIRE', count, ttlMs) end
return calls
