-- Writes down where a subscription stands, and when it is looked at next: at once, where something about it has changed
-- since it was claimed. -> 1
--
-- KEYS
--   subscriptions  of all people, by the time when a worker looks at them
--   row            those of a person
--   lacking        those that are needed and are not there
-- ARGV
--   member
--   event
--   untilMs    of the lease
--   value      JSON; '': it is not needed, and not there
--   againMs
--   isLacking  '1': it is needed, and not there

if value == '' then redis.call('HDEL', row, event) else redis.call('HSET', row, event, value) end
if isLacking == '1' then redis.call('SADD', lacking, member) else redis.call('SREM', lacking, member) end
if tonumber(redis.call('ZSCORE', subscriptions, member) or 0) ~= tonumber(untilMs) then return 1 end
if value == '' then redis.call('ZREM', subscriptions, member) else redis.call('ZADD', subscriptions, againMs, member) end
return 1
