-- A run of a schedule has ended. Counts those that failed, one after the other; a good one begins anew. One in which
-- people have answered what they were asked, or were asked nothing, ends the row of those that they missed. -> how many
-- have failed now
--
-- KEYS row
-- ARGV
--   failed  1 | 0
--   run     names it

-- include now

if redis.call('EXISTS', row) == 0 then return 0 end
redis.call('HSET', row, 'endedMs', now())
if redis.call('HGET', row, 'missedRun') ~= run then redis.call('HDEL', row, 'missed', 'missedRun') end
if failed == '1' then return redis.call('HINCRBY', row, 'failures', 1) end
redis.call('HSET', row, 'failures', 0)
return 0
