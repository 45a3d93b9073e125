-- Records the cards of a reply. An epoch may record those of its own turn until the commit. Later they belong to the sender
-- of the outbox, and cards of a reply that was sent are not recorded again. -> 1 | 0 fenced
--
-- KEYS session inbox outbox cards openCards state
-- ARGV
--   sid
--   replyId
--   reply    JSON
--   fence    epoch or outbox
--   holder   the epoch, or the token of the outbox

-- include now
-- include inbox
-- include record-id

if fence == 'epoch' then
  if redis.call('HGET', state, 'epoch') ~= holder then return 0 end
  if sid .. '-' .. (seqOf(head()) or '') ~= replyId then return 0 end
else
  if redis.call('HGET', session, 'outboxLease') ~= holder then return 0 end
  local record = redis.call('LINDEX', outbox, 0)
  if not record or recordId(record) ~= replyId then return 0 end
end
redis.call('HSET', cards, replyId, reply)
redis.call('ZADD', openCards, now(), sid .. '|' .. replyId)
return 1
