-- Erases what is known of a grant, for a process that may not read its tokens: those stay, sealed, until a worker has had
-- the platform end them. -> 1
--
-- KEYS
--   grant
--   token    its tokens
--   grants   the index of all grants
--   endings  tokens that the platform has to end
-- ARGV
--   member   of the index
--   keptMs   how long the tokens stay at most

-- include now

local v = redis.call('HMGET', grant, 'generation', 'tenant')
if v[1] and redis.call('PEXPIRE', token, keptMs) == 1 then
  local ending = {member = member, generation = v[1], tenant = v[2] or '', endedAtMs = now()}
  redis.call('ZADD', endings, now(), cjson.encode(ending))
end
redis.call('DEL', grant)
redis.call('ZREM', grants, member)
return 1
