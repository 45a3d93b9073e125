-- The platform has refused a call.
--
-- KEYS bucket
-- ARGV
--   pauseMs
--   perSecond  limits that the platform has named; 0: none
--   perMinute
--   keptMs     how long those are believed

-- include now

local nowMs = exactNow()
local untilMs = math.max(nowMs + pauseMs, tonumber(redis.call('HGET', bucket, 'pausedUntil') or '0'))
local lives = math.max(redis.call('PTTL', bucket), math.ceil(untilMs - nowMs) + 1)
redis.call('HSET', bucket, 'pausedUntil', string.format('%.3f', untilMs))
for field, ceiling in pairs({ceilingSecond = perSecond, ceilingMinute = perMinute}) do
  if tonumber(ceiling) > 0 then
    redis.call('HSET', bucket, field, ceiling, 'ceilingUntil', string.format('%.3f', nowMs + keptMs))
    lives = math.max(lives, tonumber(keptMs))
  end
end
redis.call('PEXPIRE', bucket, lives)
return 1
