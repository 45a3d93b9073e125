-- Counts runs of a schedule that failed, one after the other; a good one begins anew. -> how many there are now
--
-- KEYS row
-- ARGV
--   failed  1 | 0

if redis.call('EXISTS', row) == 0 then return 0 end
if failed == '1' then return redis.call('HINCRBY', row, 'failures', 1) end
redis.call('HSET', row, 'failures', 0)
return 0
