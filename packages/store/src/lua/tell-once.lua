-- -> 1 the first time | 0
--
-- KEYS told
-- ARGV id expiresAtMs

local first = redis.call('SADD', told, id)
redis.call('PEXPIREAT', told, expiresAtMs)
return first
