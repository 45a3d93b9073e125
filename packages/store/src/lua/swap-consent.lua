-- Writes what is known of a consent that waits for a person, unless another process has changed it. -> 1 | 0
--
-- KEYS consent
-- ARGV
--   before  JSON that is there; '': nothing
--   after   JSON; '': nothing is kept any more
--   ttlMs

if (redis.call('GET', consent) or '') ~= before then return 0 end
if after == '' then redis.call('DEL', consent) else redis.call('SET', consent, after, 'PX', ttlMs) end
return 1
