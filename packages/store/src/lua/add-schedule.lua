-- Stores a schedule once, however often that is repeated. -> 'made' | 'known' | 'full' the person or chat has as many as it may
--
-- KEYS
--   row
--   due       alarms of all
--   all       ids of all by the time when they were made
--   ofPerson
--   ofChat
-- ARGV
--   id
--   schedule  JSON
--   dueMs
--   alarmMs
--   most      of one person, and of one chat

-- include now

if redis.call('EXISTS', row) == 1 then return 'known' end
if redis.call('SCARD', ofPerson) >= tonumber(most) or redis.call('SCARD', ofChat) >= tonumber(most) then return 'full' end
redis.call('HSET', row, 'schedule', schedule, 'state', 'active', 'dueMs', dueMs, 'generation', 1, 'failures', 0)
redis.call('ZADD', due, alarmMs, id)
redis.call('ZADD', all, now(), id)
redis.call('SADD', ofPerson, id)
redis.call('SADD', ofChat, id)
return 'made'
