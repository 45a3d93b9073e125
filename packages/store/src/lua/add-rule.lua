-- Adds a permission rule, and removes rules that ended long ago. -> 1 | 0 was added before
--
-- KEYS rules byExpiry ofChat audit revoked
-- ARGV
--   id
--   rule         JSON
--   expiresAtMs
--   facts        for the audit log, JSON
--   person       whose deed it is
--   keepMs       how long a rule that is over is remembered
--   auditMax

-- include now
-- include audit

local over = redis.call('ZRANGEBYSCORE', byExpiry, '-inf', now() - tonumber(keepMs), 'LIMIT', 0, 100)
for _, old in ipairs(over) do
  redis.call('HDEL', rules, old)
  redis.call('HDEL', revoked, old)
  redis.call('ZREM', byExpiry, old)
end
if redis.call('HSETNX', rules, id, rule) == 0 then return 0 end
redis.call('ZADD', byExpiry, expiresAtMs, id)
redis.call('ZREMRANGEBYSCORE', ofChat, '-inf', now())
redis.call('ZADD', ofChat, expiresAtMs, id)
redis.call('PEXPIREAT', ofChat, redis.call('ZREVRANGE', ofChat, 0, 0, 'WITHSCORES')[2])
record('rule_added', '', '', facts, {person = person})
return 1
