-- The reply at the head was sent. A token that is not the current one changes nothing. -> the next reply to send, or ''
--
-- KEYS session outbox due cards openCards
-- ARGV
--   sid
--   token
--   leaseMs

-- include lease
-- include record-id

if redis.call('HGET', session, 'outboxLease') ~= token then return '' end
local sent = redis.call('LPOP', outbox)
if sent and redis.call('EXISTS', cards) == 1 then
  local id = recordId(sent)
  redis.call('HDEL', cards, id)
  redis.call('ZREM', openCards, sid .. '|' .. id)
end
return leaseNext()
