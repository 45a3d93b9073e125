-- Changes a schedule: what it says, when it is due, or that it is paused. -> 1 | 0 it is gone, done, or has changed since
--
-- KEYS
--   row
--   due  alarms of all
--   subscriptions  of all people, by the time when a worker looks at them
-- ARGV
--   id
--   generation  that was read
--   state       'active' or 'paused'
--   why         it is paused; may be ''
--   schedule    JSON
--   dueMs
--   alarmMs     '': it waits for an event
--   waits       the subscription that it needs; '': none

-- include now

local v = redis.call('HMGET', row, 'generation', 'state', 'waits')
if v[1] ~= generation or v[2] == 'done' then return 0 end
redis.call('HSET', row, 'generation', tonumber(generation) + 1, 'state', state, 'why', why, 'schedule', schedule, 'dueMs', dueMs, 'failures', 0)
redis.call('HDEL', row, 'claimedMs', 'missed', 'missedRun')
if state == 'active' and alarmMs ~= '' then redis.call('ZADD', due, alarmMs, id) else redis.call('ZREM', due, id) end
if waits ~= '' then redis.call('HSET', row, 'waits', waits) else redis.call('HDEL', row, 'waits') end
for _, one in ipairs({v[3] or '', waits}) do
  if one ~= '' then redis.call('ZADD', subscriptions, now(), one) end
end
return 1
