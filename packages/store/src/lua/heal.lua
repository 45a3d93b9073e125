-- Wakes a session that no worker and no job will continue. The next claim decides whether its worker's end counts as a
-- death. One that runs is left alone unless its worker is the one that has ended.
-- -> generation to add a job for, or 0
--
-- KEYS session inbox control dirty requests state
-- ARGV
--   sid
--   deadGen  the generation that was running
--   ended    the worker that has ended; '': none, '*': whichever has the session

-- include wake

local v = redis.call('HMGET', session, 'state', 'generation')
local st = v[1] or 'idle'
if st == 'queued' then
  redis.call('ZADD', dirty, now(), sid)
  return tonumber(v[2])
end
if st == 'running' then
  local running = redis.call('HMGET', state, 'runningGeneration', 'owner')
  if running[1] ~= deadGen or (ended ~= '*' and running[2] ~= ended) then return 0 end
  redis.call('HSET', state, 'lost', running[2] or '')
  return wake(v[2])
end
if redis.call('LLEN', control) + redis.call('LLEN', requests) > 0 or (st == 'idle' and redis.call('LLEN', inbox) > 0) then
  return wake(v[2])
end
redis.call('ZREM', dirty, sid)
return 0
