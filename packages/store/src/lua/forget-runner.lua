-- -> {1 if it was away, how many instances live}
--
-- KEYS instances names
-- ARGV runner channel

-- include living

local left = 0
for _ in pairs(living(instances)) do left = left + 1 end
if left > 0 then return {0, left} end
redis.call('SREM', names, runner)
local forgotten = redis.call('UNLINK', instances)
redis.call('PUBLISH', channel, runner)
return {forgotten, 0}
