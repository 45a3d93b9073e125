-- Notes that a spender is warned in a period. -> 1 the first time | 0
--
-- KEYS warned
-- ARGV id expiresAtMs

local first = redis.call('SADD', warned, id)
redis.call('PEXPIREAT', warned, expiresAtMs)
return first
