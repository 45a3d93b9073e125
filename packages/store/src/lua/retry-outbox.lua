-- Delays the next try of the reply at the head. -> 1 | 0 another process has it
--
-- KEYS session outbox due
-- ARGV
--   sid
--   token
--   reply      as it is now, JSON
--   retryAtMs

if redis.call('HGET', session, 'outboxLease') ~= token then return 0 end
redis.call('LSET', outbox, 0, reply)
redis.call('HDEL', session, 'outboxLease', 'outboxLeaseUntil')
redis.call('HSET', session, 'outboxRetryAt', retryAtMs)
redis.call('ZADD', due, retryAtMs, sid)
return 1
