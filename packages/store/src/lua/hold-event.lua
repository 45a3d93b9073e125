-- Keeps an event for a schedule until quiet hours end. -> 'held' | 'known' | 'full' | 'gone' it does not wait any more
--
-- KEYS
--   row
--   due   alarms of all
--   held  events that quiet hours have held
-- ARGV
--   id
--   cause    id of the event
--   facts    JSON
--   untilMs
--   most     that are held

if redis.call('HGET', row, 'state') ~= 'active' then return 'gone' end
if redis.call('HEXISTS', held, cause) == 1 then return 'known' end
if redis.call('HLEN', held) >= tonumber(most) then return 'full' end
redis.call('HSET', held, cause, facts)
if not redis.call('ZSCORE', due, id) then
  redis.call('HSET', row, 'dueMs', untilMs)
  redis.call('ZADD', due, untilMs, id)
end
return 'held'
