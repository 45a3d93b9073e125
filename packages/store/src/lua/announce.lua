-- A runner says which tools it has. -> 'current' | 'superseded' | name of the tool and runner in conflict
--
-- KEYS
--   instances  hash: the instances of this runner, JSON each
--   names      set: the names of all runners
--   owners     hash: which runner a name, or a prefix of names, belongs to
-- ARGV
--   instance
--   runner
--   json      what it says
--   ttlMs     how long that holds
--   channel   on which a change is published
--   base      what the keys of the instances of all runners begin with

-- include living
-- include tool-owners

local mine = cjson.decode(json)
local generation = mine.generation
local siblings = living(instances, true)
local known = siblings[instance]
siblings[instance] = nil
local owned = allOwners(owners)
for tool in pairs(mine.digests) do
  local owner = ownerOf(owned, tool)
  if owner and owner ~= runner then return tool .. '|' .. owner end
end
-- What this instance offers already it keeps, whatever others have written since. What others say of a tool that
-- belongs to this runner does not count.
local function conflict(others, name)
  for _, other in pairs(others) do
    for tool, digest in pairs(mine.digests) do
      local theirs = type(other.digests) == 'table' and other.digests[tool]
      local same = name == runner and (other.generation ~= generation or theirs == digest)
      local kept = known and known.digests[tool] == digest
      local counts = name == runner or not ownerOf(owned, tool)
      if theirs and counts and not same and not kept then return tool .. '|' .. name end
    end
  end
end
local clash = conflict(siblings, runner)
for _, name in ipairs(redis.call('SMEMBERS', names)) do
  if not clash and name ~= runner then clash = conflict(living(base .. name), name) end
end
if clash then return clash end
redis.call('HSET', instances, instance, json)
redis.call('PEXPIRE', instances, tonumber(ttlMs) + awayMs)
redis.call('SADD', names, runner)
local same = known and known.generation == generation and known.offer == mine.offer and known.clock == mine.clock
if not same then redis.call('PUBLISH', channel, runner) end
local began = {[generation] = mine.beganAtMs}
for _, other in pairs(siblings) do
  local its = other.generation or ''
  began[its] = math.min(began[its] or math.huge, other.beganAtMs or 0)
end
for its, ms in pairs(began) do
  if ms > began[generation] or (ms == began[generation] and its > generation) then return 'superseded' end
end
return 'current'
