-- -> {now, (runner, instance as JSON)...}: the time is that of the node that holds the keys.
--
-- KEYS names
-- ARGV base

-- include now

local out = {string.format('%.0f', now())}
for _, name in ipairs(redis.call('SMEMBERS', names)) do
  for _, one in ipairs(redis.call('HVALS', base .. name)) do
    table.insert(out, name)
    table.insert(out, one)
  end
end
return out
