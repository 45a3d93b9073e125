-- Lets one process refresh a grant, once in a while: an overdue one may be replaced. -> 1 | 0 it is leased, or has changed
--
-- KEYS grant
-- ARGV
--   generation  that is to be refreshed
--   holder      of the lease
--   leaseMs

-- include now

local v = redis.call('HMGET', grant, 'generation', 'state', 'leaseHolder', 'leaseUntilMs')
if v[1] ~= generation or v[2] ~= 'active' then return 0 end
if v[3] and tonumber(v[4]) > now() then return 0 end
redis.call('HSET', grant, 'leaseHolder', holder, 'leaseUntilMs', now() + tonumber(leaseMs))
return 1
