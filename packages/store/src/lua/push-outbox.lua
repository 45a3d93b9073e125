-- Puts a reply outside any turn into the outbox, once for a message, which may be parked behind it.
-- -> {0} known already | {1, the reply to send, or '' while another process sends or the head has to wait}
--
-- KEYS session outbox due seen parked
-- ARGV
--   sid
--   reply        JSON
--   seenTtlMs    how long the message's id is remembered
--   token
--   leaseMs
--   message      to park, JSON, or ''
--   notBeforeMs  when the reply may be sent; 0: at once. Behind other replies it is sent after them

-- include lease

if not redis.call('SET', seen, '0', 'NX', 'PX', seenTtlMs) then return {0} end
if message ~= '' then redis.call('SET', parked, message, 'PX', seenTtlMs) end
local length = redis.call('RPUSH', outbox, reply)
if length == 1 and tonumber(notBeforeMs) > now() then
  redis.call('HSET', session, 'outboxRetryAt', notBeforeMs)
  redis.call('ZADD', due, notBeforeMs, sid)
  return {1, ''}
end
redis.call('ZADD', due, 'NX', now(), sid)
return {1, lease()}
