-- A helper is about to take a model step. -> model steps of all helpers of the root's run, this one included | -1 fenced
--
-- KEYS children state
-- ARGV
--   epoch
--   rootTurnId
--   turnId      of the helper
--   step        its number; a number that comes again is not counted again

-- include fenced

if fenced() then return -1 end
local field = 'steps ' .. turnId
local before = tonumber(redis.call('HGET', children, field) or 0)
local all = 'steps ' .. rootTurnId
if tonumber(step) <= before then return tonumber(redis.call('HGET', children, all) or 0) end
redis.call('HSET', children, field, step)
return redis.call('HINCRBY', children, all, tonumber(step) - before)
