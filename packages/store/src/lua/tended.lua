-- The history of a session was looked after. -> 1 | 0 its last turn has ended since: it has to be looked after again
--
-- KEYS untended
-- ARGV sid endedAtMs

if redis.call('ZSCORE', untended, sid) ~= endedAtMs then return 0 end
return redis.call('ZREM', untended, sid)
