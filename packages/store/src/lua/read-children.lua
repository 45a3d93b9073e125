-- What is known of all children of a root, also of those that have ended. -> {session, facts, ...}
--
-- KEYS session children endedChildren
-- ARGV sid

local all = redis.call('HGETALL', children)
for _, child in ipairs(redis.call('ZRANGE', endedChildren, 0, -1)) do
  local facts = redis.call('HGET', string.sub(session, 1, -(#sid + 1)) .. child, 'facts')
  if facts then
    table.insert(all, child)
    table.insert(all, facts)
  end
end
return all
