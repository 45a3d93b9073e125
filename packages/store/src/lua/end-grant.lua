-- Ends a grant: without a generation all of it, and a refresh that is under way is not stored any more; with one only the
-- right to refresh, and only if no other generation is there. -> 1 | 0
--
-- KEYS
--   grant
--   token    its tokens
--   grants   the index of all grants
--   endings  tokens that the platform has to end
-- ARGV
--   generation
--   isRefused  '1': with the generation, because the platform takes its access token no more
--   member    of the index
--   reason    of the end
--   keptMs    how long is known that it has ended
--   atPlatform  '1': without a generation, and the platform has to end it, too

-- include now

local found = redis.call('HGET', grant, 'generation')
if not found or (generation ~= '' and found ~= generation) then return 0 end
redis.call('HDEL', grant, 'leaseHolder', 'leaseUntilMs')
if generation ~= '' then
  if isRefused == '1' then redis.call('DEL', token) end
  redis.call('HSET', grant, 'state', 'needs_consent')
  return 1
end
local sealed = atPlatform == '1' and redis.call('GET', token)
if sealed then
  local tenant = redis.call('HGET', grant, 'tenant') or ''
  local ending = {member = member, generation = found, tenant = tenant, sealed = sealed, endedAtMs = now()}
  redis.call('ZADD', endings, now(), cjson.encode(ending))
end
redis.call('DEL', token)
redis.call('HINCRBY', grant, 'generation', 1)
redis.call('HSET', grant, 'state', 'revoked', 'endedAtMs', now(), 'endReason', reason)
redis.call('PEXPIRE', grant, keptMs)
redis.call('ZADD', grants, now() + tonumber(keptMs), member)
return 1
