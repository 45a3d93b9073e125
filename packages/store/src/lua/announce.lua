-- A runner says which tools it has. -> 'current' | 'superseded' | name of the tool and runner in conflict
--
-- KEYS
--   instances  hash: the instances of this runner, JSON each
--   names      set: the names of all runners
-- ARGV
--   instance
--   runner
--   json      what it says
--   ttlMs     how long that holds
--   channel   on which a change is published
--   base      what the keys of the instances of all runners begin with

-- include living

local mine = cjson.decode(json)
local generation = mine.generation
local siblings = living(instances, true)
local known = siblings[instance]
siblings[instance] = nil
-- What this instance offers already it keeps, whatever others have written since.
local function conflict(others, name)
  for _, other in pairs(others) do
    for tool, digest in pairs(mine.digests) do
      local theirs = type(other.digests) == 'table' and other.digests[tool]
      local same = name == runner and (other.generation ~= generation or theirs == digest)
      local kept = known and known.digests[tool] == digest
      if theirs and not same and not kept then return tool .. '|' .. name end
    end
  end
end
local clash = conflict(siblings, runner)
for _, name in ipairs(redis.call('SMEMBERS', names)) do
  if not clash and name ~= runner then clash = conflict(living(base .. name), name) end
end
if clash then return clash end
local before = redis.call('HGET', instances, instance)
local earlier = before and cjson.decode(before)
local beganAtMs = nowMs
if earlier and earlier.generation == generation then beganAtMs = earlier.beganAtMs end
local announced = withTime(withTime(json, 'expiresAtMs', nowMs + tonumber(ttlMs)), 'beganAtMs', beganAtMs)
redis.call('HSET', instances, instance, announced)
redis.call('PEXPIRE', instances, tonumber(ttlMs) + awayMs)
redis.call('SADD', names, runner)
local same = known and withTime(withTime(before, 'expiresAtMs', 0), 'beganAtMs', 0) == json
if not same then redis.call('PUBLISH', channel, runner) end
local began = {[generation] = beganAtMs}
for _, other in pairs(siblings) do
  local its = other.generation or ''
  began[its] = math.min(began[its] or math.huge, other.beganAtMs or 0)
end
for its, ms in pairs(began) do
  if ms > began[generation] or (ms == began[generation] and its > generation) then return 'superseded' end
end
return 'current'
