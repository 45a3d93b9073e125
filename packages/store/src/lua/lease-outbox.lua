-- -> the reply to send, or ''
--
-- KEYS session outbox due
-- ARGV
--   sid
--   token
--   leaseMs

-- include lease

if redis.call('LLEN', outbox) == 0 then
  redis.call('ZREM', due, sid)
  return ''
end
return lease()
