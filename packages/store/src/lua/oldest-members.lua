-- Members of sorted sets up to a score. All sets are on one server.
--
-- KEYS sets...
-- ARGV
--   untilMs
--   limit    of each set
--
-- -> {member, score...}: lowest first within each set

local found = {}
for _, set in ipairs(sets) do
  for _, part in ipairs(redis.call('ZRANGEBYSCORE', set, '-inf', untilMs, 'WITHSCORES', 'LIMIT', 0, limit)) do
    found[#found + 1] = part
  end
end
return found
