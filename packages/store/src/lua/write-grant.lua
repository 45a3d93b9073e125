-- Writes what a person has granted, or what a refresh has given, unless another generation is there. -> 1 | 0
--
-- KEYS
--   grant
--   token    its tokens
--   grants   the index of all grants
-- ARGV
--   generation  that is there; 0: no grant yet
--   next        the one that is written
--   facts       names and values as a JSON list; '': they stay, only the seal is new
--   sealed      the tokens
--   member      of the index
--   lookAtMs    when a worker looks after it
--   ttlMs
--   holder      whose lease has to be there still; '': it does not matter

if (redis.call('HGET', grant, 'generation') or '0') ~= generation then return 0 end
if holder ~= '' and redis.call('HGET', grant, 'leaseHolder') ~= holder then return 0 end
redis.call('HDEL', grant, 'leaseHolder', 'leaseUntilMs')
redis.call('HSET', grant, 'generation', next)
if facts ~= '' then
  redis.call('HDEL', grant, 'refreshEndsAtMs', 'endedAtMs', 'endReason', 'refreshError', 'refreshErrorAtMs')
  redis.call('HSET', grant, unpack(cjson.decode(facts)))
  redis.call('ZADD', grants, lookAtMs, member)
end
redis.call('SET', token, sealed, 'PX', ttlMs)
redis.call('PEXPIRE', grant, ttlMs)
return 1
