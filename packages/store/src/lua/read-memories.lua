-- -> {1 | 0 the person wants nothing remembered, {member, text, by, atMs, usedAtMs, uses} of each}
--
-- KEYS memories memory off lookUp
-- ARGV tenant

-- include memories

return {redis.call('EXISTS', off), living(tenant)}
