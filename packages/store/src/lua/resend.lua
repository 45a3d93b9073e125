-- Puts a dead letter back into the outbox. -> 1 | 0 no such letter
--
-- KEYS outbox due cards openCards letters lettersByTime
-- ARGV
--   sid
--   member
--   reply    JSON
--   replyId

-- include letters

if redis.call('HEXISTS', letters, member) == 0 then return 0 end
local its = redis.call('HGET', letters, member .. '|cards')
if its then
  redis.call('HSET', cards, replyId, its)
  redis.call('ZADD', openCards, now(), sid .. '|' .. replyId)
end
redis.call('RPUSH', outbox, reply)
redis.call('ZADD', due, 'NX', now(), sid)
forget(member)
return 1
