-- Leases the reply at the head of the outbox to one process at a time. -> the reply, or '' if another one
-- has it, it is not to be tried yet, or there is none
--
-- KEYS session outbox due
-- ARGV
--   sid
--   token    of the process, for as long as it has the right
--   leaseMs  how long that is

-- include now

-- What follows `record` are other fields of the session that are set in the same step.
local function grant(record, ...)
  local untilMs = now() + tonumber(leaseMs)
  redis.call('HSET', session, 'outboxLease', token, 'outboxLeaseUntil', untilMs, ...)
  redis.call('ZADD', due, untilMs, sid)
  return record
end
local function lease()
  local v = redis.call('HMGET', session, 'outboxLeaseUntil', 'outboxRetryAt')
  if tonumber(v[1] or 0) > now() or tonumber(v[2] or 0) > now() then return '' end
  local record = redis.call('LINDEX', outbox, 0)
  return record and grant(record) or ''
end
-- For the holder of the lease, after it has removed a reply from the outbox. -> the next one, or ''
local function leaseNext()
  redis.call('HDEL', session, 'outboxLease', 'outboxLeaseUntil', 'outboxRetryAt')
  local record = redis.call('LINDEX', outbox, 0)
  if record then return grant(record) end
  redis.call('ZREM', due, sid)
  return ''
end
