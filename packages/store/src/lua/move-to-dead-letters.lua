-- Moves the reply at the head of the outbox to the dead letters. -> the next reply to send, or ''
--
-- KEYS session outbox due cards openCards letters lettersByTime
-- ARGV
--   sid
--   token
--   leaseMs
--   member
--   letter  JSON
--   keptMs  how long letters are kept
--   most    how many a cell keeps

-- include lease
-- include record-id
-- include letters

if redis.call('HGET', session, 'outboxLease') ~= token then return '' end
local given = redis.call('LPOP', outbox)
if given then
  local id = recordId(given)
  local its = redis.call('HGET', cards, id)
  keep(letter, keptMs, tonumber(most))
  if its then
    redis.call('HSET', letters, member .. '|cards', its)
    redis.call('HDEL', cards, id)
    redis.call('ZREM', openCards, sid .. '|' .. id)
  end
end
return leaseNext()
