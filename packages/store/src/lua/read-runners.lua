-- What all runners have announced.
--
-- KEYS names owners
-- ARGV
--   base       what the keys of the instances of all runners begin with
--   presences  what the keys of the last beats of processes begin with
--   channels   what the names of presence channels begin with
--
-- -> {now, owners of tools as JSON, (runner, instance as JSON, 1 if its connection was closed without a word)...}:
--    the time is that of the node that holds the keys

-- include presence
-- include tool-owners

-- `runner:<runner>:<instance>` is the presence of an instance; runners in other languages have none.
local function isGone(runner, instance)
  local id = 'runner:' .. runner .. ':' .. instance
  -- A runner may read the beats of its own instances alone.
  local beat = redis.pcall('GET', presences .. id)
  local seenBy = type(beat) == 'string' and string.match(beat, '^%d+ (%w+)$') or nil
  return seenBy ~= nil and seenBy == thisServer() and listeners({id})[id] == 0
end

local out = {string.format('%.0f', now()), cjson.encode(allOwners(owners))}
for _, name in ipairs(redis.call('SMEMBERS', names)) do
  local instances = redis.call('HGETALL', base .. name)
  for at = 1, #instances, 2 do
    table.insert(out, name)
    table.insert(out, instances[at + 1])
    table.insert(out, isGone(name, instances[at]) and 1 or 0)
  end
end
return out
