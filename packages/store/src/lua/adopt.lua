-- Adds a session to the indexes of retention. -> 1 | 0 known before, or nothing is stored of it
--
-- KEYS session ended untended
-- ARGV sid

-- include now

if redis.call('EXISTS', session) == 0 then return 0 end
if redis.call('ZADD', ended, 'NX', now(), sid) == 0 then return 0 end
redis.call('ZADD', untended, 'NX', now(), sid)
return 1
