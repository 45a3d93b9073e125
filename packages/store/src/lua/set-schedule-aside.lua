-- Pauses a schedule whose row cannot be read, so that it is claimed no more. -> 1 | 0 it is gone, or not active
--
-- KEYS
--   row
--   due  alarms of all
-- ARGV
--   id

if redis.call('HGET', row, 'state') ~= 'active' then return 0 end
redis.call('HSET', row, 'state', 'paused', 'why', 'unreadable')
redis.call('HDEL', row, 'claimedMs')
redis.call('ZREM', due, id)
return 1
