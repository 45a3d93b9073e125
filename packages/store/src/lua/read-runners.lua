-- -> {now, owners of tools as JSON, (runner, instance as JSON)...}: the time is that of the node that holds the keys.
--
-- KEYS names owners
-- ARGV base

-- include now
-- include tool-owners

local out = {string.format('%.0f', now()), cjson.encode(allOwners(owners))}
for _, name in ipairs(redis.call('SMEMBERS', names)) do
  for _, one in ipairs(redis.call('HVALS', base .. name)) do
    table.insert(out, name)
    table.insert(out, one)
  end
end
return out
