-- Forgets a runner that is away, and frees the names of its tools. -> {1 if it was away, how many instances live}
--
-- KEYS instances names owners
-- ARGV runner channel

-- include living
-- include tool-owners

local left = 0
for _ in pairs(living(instances)) do left = left + 1 end
if left > 0 then return {0, left} end
local freed = 0
for tool, owner in pairs(allOwners(owners)) do
  if owner == runner then freed = freed + redis.call('HDEL', owners, tool) end
end
local known = redis.call('SREM', names, runner)
redis.call('UNLINK', instances)
redis.call('PUBLISH', channel, runner)
return {(known > 0 or freed > 0) and 1 or 0, 0}
