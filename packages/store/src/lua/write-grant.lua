-- Writes what a person has granted, or what a refresh has given, unless another generation is there. -> 1 | 0
--
-- KEYS grant
-- ARGV
--   generation  that is there; 0: no grant yet
--   next        the one that is written
--   fields      names and values as a JSON list
--   ttlMs
--   holder      whose lease has to be there still; '': it does not matter

if (redis.call('HGET', grant, 'generation') or '0') ~= generation then return 0 end
if holder ~= '' and redis.call('HGET', grant, 'leaseHolder') ~= holder then return 0 end
redis.call('DEL', grant)
redis.call('HSET', grant, 'generation', next, unpack(cjson.decode(fields)))
redis.call('PEXPIRE', grant, ttlMs)
return 1
