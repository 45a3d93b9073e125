-- Stores a person's rating of an answer: one for each person and run, the last one counts.
-- -> 1 | 0 a later word of theirs is known, or they have not said what they take back
--
-- KEYS
--   ratings  what the keys of ratings begin with
--   byTime   sorted set of their names by the time of the last word
-- ARGV
--   member   the run and the person
--   facts    JSON, of the run and the person
--   rating   'up', 'down', 'none'; '' says nothing of it
--   instead  '', or the rating that has to be there
--   reason   '' says nothing of it
--   saidMs   when it was said, as the platform has it; 0: now
--   ttlMs    after the last word
--   most     ratings that are kept, the newest

-- include now

local one, ttl, nowMs = ratings .. ':' .. member, tonumber(ttlMs), now()
local atMs = tonumber(saidMs) > 0 and math.min(tonumber(saidMs), nowMs) or nowMs
if rating ~= '' then
  local before = redis.call('HMGET', one, 'rating', 'ratedAtMs')
  if atMs < tonumber(before[2] or 0) then return 0 end
  if instead ~= '' and before[1] ~= instead and before[1] then return 0 end
  redis.call('HSET', one, 'rating', rating, 'ratedAtMs', string.format('%.0f', atMs))
end
if reason ~= '' then redis.call('HSET', one, 'reason', reason) end
redis.call('HSET', one, 'facts', facts, 'atMs', string.format('%.0f', nowMs))
redis.call('PEXPIRE', one, ttl)
redis.call('ZADD', byTime, string.format('%.0f', nowMs), member)
redis.call('PEXPIRE', byTime, ttl)
redis.call('ZREMRANGEBYSCORE', byTime, '-inf', string.format('%.0f', nowMs - ttl))
local over = redis.call('ZCARD', byTime) - tonumber(most)
if over > 0 then
  for _, old in ipairs(redis.call('ZRANGE', byTime, 0, over - 1)) do
    redis.call('UNLINK', ratings .. ':' .. old)
    redis.call('ZREM', byTime, old)
  end
end
return 1
