-- Counts runs of a schedule, one after the other, in which people did not answer; each counts once. -> how many there are now
--
-- KEYS row
-- ARGV
--   run  names it

if redis.call('EXISTS', row) == 0 then return 0 end
if redis.call('HGET', row, 'missedRun') == run then return tonumber(redis.call('HGET', row, 'missed')) end
redis.call('HSET', row, 'missedRun', run)
return redis.call('HINCRBY', row, 'missed', 1)
