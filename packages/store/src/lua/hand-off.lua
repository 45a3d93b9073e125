-- Releases the session of a worker that stops. -> 1 | 0 fenced
--
-- KEYS session dirty state
-- ARGV epoch sid

-- include now
-- include fenced

if fenced() then return 0 end
redis.call('HDEL', state, 'lost')
redis.call('HSET', session, 'state', 'queued')
redis.call('ZADD', dirty, now(), sid)
return 1
