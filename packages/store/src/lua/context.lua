-- History stays whole; only what a claim hands out changes: the summary and the last `keep` messages. Where nothing is
-- left of it, a new conversation begins, with an empty folder.
--
-- KEYS state history files

-- include rising

local function setContext(keep, summary)
  if keep == '' then return end
  local start = math.max(0, redis.call('LLEN', history) - tonumber(keep))
  redis.call('HSET', state, 'contextStart', start, 'contextVersion', above(redis.call('HGET', state, 'contextVersion')))
  if keep == '0' and summary == '' then redis.call('DEL', files) end
  if summary == '' then redis.call('HDEL', state, 'summary') else redis.call('HSET', state, 'summary', summary) end
end
