-- Ends a grant: without a generation all of it, and a refresh that is under way is not stored any more; with one only the
-- right to refresh, and only if no other generation is there. -> 1 | 0
--
-- KEYS grant
-- ARGV generation

local found = redis.call('HGET', grant, 'generation')
if not found or (generation ~= '' and found ~= generation) then return 0 end
redis.call('HDEL', grant, 'leaseHolder', 'leaseUntilMs')
if generation ~= '' then
  redis.call('HSET', grant, 'state', 'needs_consent')
  return 1
end
redis.call('HDEL', grant, 'sealed')
redis.call('HINCRBY', grant, 'generation', 1)
redis.call('HSET', grant, 'state', 'revoked')
return 1
