-- Renews the heartbeat of a worker. Gives the workers that have stopped beating and have not said that they end.
--
-- KEYS
--   heartbeat
--   workers    sorted set: workers by their last beat
-- ARGV
--   owner          '' where this process is no worker: nothing is done
--   heartbeatMs    how long the heartbeat is good for
--   reportedForMs  workers that were silent before are left out

-- include now

if owner == '' then return {} end
redis.call('SET', heartbeat, '1', 'PX', heartbeatMs)
redis.call('ZADD', workers, now(), owner)
return redis.call('ZRANGEBYSCORE', workers, now() - reportedForMs, '(' .. (now() - heartbeatMs))
