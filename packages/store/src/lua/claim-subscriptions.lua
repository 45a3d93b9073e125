-- Lets one worker look at the subscriptions that are due. They come back after the lease, or when something about them
-- has changed. -> those, as texts
--
-- KEYS
--   subscriptions  of all people, by the time when a worker looks at them
-- ARGV
--   limit
--   untilMs  of the lease

-- include now

local due = redis.call('ZRANGEBYSCORE', subscriptions, '-inf', now(), 'LIMIT', 0, limit)
for _, one in ipairs(due) do redis.call('ZADD', subscriptions, untilMs, one) end
return due
