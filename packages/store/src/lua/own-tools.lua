-- A worker writes down whom names of tools belong to. -> all owners, as JSON
--
-- KEYS
--   owners  hash: which runner a name, or a prefix of names, belongs to
-- ARGV
--   assigned  JSON: what the configuration says, by name or prefix
--   claimed   JSON: what runners offer that has no owner yet, by name
--   dropped   JSON: prefixes that the configuration has no more

-- include tool-owners

for name, runner in pairs(cjson.decode(assigned)) do redis.call('HSET', owners, name, runner) end
for _, name in ipairs(cjson.decode(dropped)) do redis.call('HDEL', owners, name) end
for name, runner in pairs(cjson.decode(claimed)) do redis.call('HSETNX', owners, name, runner) end
return cjson.encode(allOwners(owners))
