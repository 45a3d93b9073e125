-- Removes an instance of a runner that ends. -> how many living instances of the runner are left
--
-- KEYS
--   instances  hash: the instances of this runner, JSON each
-- ARGV
--   instance
--   runner
--   channel   on which the change is published

-- include living

local mine = redis.call('HGET', instances, instance)
-- Beside what is signed, which stays as it is.
if mine then
  local gone = '{"goneAtMs":' .. string.format('%.0f', nowMs) .. ','
  redis.call('HSET', instances, instance, (string.gsub(mine, '^{', gone, 1)))
end
local left = 0
for _ in pairs(living(instances)) do left = left + 1 end
redis.call('PUBLISH', channel, runner)
return left
