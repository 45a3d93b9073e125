-- Changes a schedule: what it says, when it is due, or that it is paused. -> 1 | 0 it is gone, done, or has changed since
--
-- KEYS
--   row
--   due  alarms of all
-- ARGV
--   id
--   generation  that was read
--   state       'active' or 'paused'
--   why         it is paused; may be ''
--   schedule    JSON
--   dueMs
--   alarmMs

local v = redis.call('HMGET', row, 'generation', 'state')
if v[1] ~= generation or v[2] == 'done' then return 0 end
redis.call('HSET', row, 'generation', tonumber(generation) + 1, 'state', state, 'why', why, 'schedule', schedule, 'dueMs', dueMs, 'failures', 0)
redis.call('HDEL', row, 'claimedMs', 'missed', 'missedRun')
if state == 'active' then redis.call('ZADD', due, alarmMs, id) else redis.call('ZREM', due, id) end
return 1
