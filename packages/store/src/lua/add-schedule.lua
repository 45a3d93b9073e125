-- Stores a schedule once, however often that is repeated. -> 'made' | 'known' | 'full' the person or chat has as many as it may
--
-- KEYS
--   row
--   due       alarms of all
--   all       ids of all by the time when they were made
--   ofPerson
--   ofChat
--   subscriptions  of all people, by the time when a worker looks at them
-- ARGV
--   id
--   schedule  JSON
--   dueMs
--   alarmMs   '': it waits for an event
--   waits     the subscription that it needs; '': none
--   most      of one person, and of one chat

-- include now

if redis.call('EXISTS', row) == 1 then return 'known' end
if redis.call('SCARD', ofPerson) >= tonumber(most) or redis.call('SCARD', ofChat) >= tonumber(most) then return 'full' end
redis.call('HSET', row, 'schedule', schedule, 'state', 'active', 'dueMs', dueMs, 'generation', 1, 'failures', 0)
if alarmMs ~= '' then redis.call('ZADD', due, alarmMs, id) end
if waits ~= '' then
  redis.call('HSET', row, 'waits', waits)
  redis.call('ZADD', subscriptions, now(), waits)
end
redis.call('ZADD', all, now(), id)
redis.call('SADD', ofPerson, id)
redis.call('SADD', ofChat, id)
return 'made'
