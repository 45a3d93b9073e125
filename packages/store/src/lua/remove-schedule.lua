-- Removes a schedule and its log. -> 1 | 0 there is none
--
-- KEYS
--   row
--   due       alarms of all
--   all       ids of all by the time when they were made
--   ofPerson
--   ofChat
--   log
--   held  events that quiet hours have held
--   subscriptions  of all people, by the time when a worker looks at them
-- ARGV
--   id

-- include now

local waits = redis.call('HGET', row, 'waits')
if waits then redis.call('ZADD', subscriptions, now(), waits) end
redis.call('ZREM', due, id)
redis.call('ZREM', all, id)
redis.call('SREM', ofPerson, id)
redis.call('SREM', ofChat, id)
redis.call('DEL', log, held)
return redis.call('DEL', row)
