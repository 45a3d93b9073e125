-- Renews the time to live of memories that were shown to a model.
--
-- KEYS memories memory lookUp
-- ARGV ttlMs members...

-- include now
-- include memories

for _, member in ipairs(members) do
  if redis.call('EXISTS', keyOf(member)) == 1 then
    local atMs = string.format('%.0f', now())
    redis.call('HINCRBY', keyOf(member), 'uses', 1)
    redis.call('HSET', keyOf(member), 'usedAtMs', atMs)
    keep(member, atMs, ttlMs)
  end
end
return 1
