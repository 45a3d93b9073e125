-- Removes a schedule and its log. -> 1 | 0 there is none
--
-- KEYS
--   row
--   due       alarms of all
--   all       ids of all by the time when they were made
--   ofPerson
--   ofChat
--   log
-- ARGV
--   id

redis.call('ZREM', due, id)
redis.call('ZREM', all, id)
redis.call('SREM', ofPerson, id)
redis.call('SREM', ofChat, id)
redis.call('DEL', log)
return redis.call('DEL', row)
