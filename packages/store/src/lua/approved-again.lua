-- -> how many approvals of one kind there are. It stops counting at a thousand.
--
-- KEYS approved
-- ARGV approvalId ttlMs

if redis.call('SCARD', approved) < 1000 then redis.call('SADD', approved, approvalId) end
redis.call('PEXPIRE', approved, ttlMs)
return redis.call('SCARD', approved)
