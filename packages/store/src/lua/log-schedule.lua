-- Writes down what became of an event that a schedule has waited for. -> 1 | 0 there is none such
--
-- KEYS
--   row
--   log
-- ARGV
--   line  JSON
--   keep  lines of a log

if redis.call('EXISTS', row) == 0 then return 0 end
redis.call('LPUSH', log, line)
redis.call('LTRIM', log, 0, tonumber(keep) - 1)
return 1
