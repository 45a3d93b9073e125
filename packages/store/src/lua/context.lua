-- History stays whole; only what a claim hands out changes: the summary and the last `keep` messages.
--
-- KEYS state history

-- include rising

local function setContext(keep, summary)
  if keep == '' then return end
  local start = math.max(0, redis.call('LLEN', history) - tonumber(keep))
  redis.call('HSET', state, 'cs', start, 'hv', above(redis.call('HGET', state, 'hv')))
  if summary == '' then redis.call('HDEL', state, 'sm') else redis.call('HSET', state, 'sm', summary) end
end
