-- Redacts the messages of a person in a session. Cached histories of workers become void, and so does the summary, since
-- it may hold their content. -> how many messages were replaced
--
-- KEYS session history events kept expiries approvalCards state approvals said
-- ARGV
--   sid
--   marker    what stands for a message, JSON
--   numbers   of messages, as a JSON list
--   theirs    ids of approvals that were asked for that person, as a JSON list

-- include rising

if redis.call('EXISTS', session) == 0 then return 0 end
local base, length = tonumber(redis.call('HGET', state, 'historyBase') or 0), redis.call('LLEN', history)
local replaced = 0
for _, number in ipairs(cjson.decode(numbers)) do
  local at = number - base
  if at >= 0 and at < length then
    redis.call('LSET', history, at, marker)
    replaced = replaced + 1
  end
end
for _, id in ipairs(cjson.decode(theirs)) do
  local answered, member = said .. ':' .. id, sid .. '|' .. id
  if (redis.call('HGET', answered, 'state') or 'pending') ~= 'pending' then
    redis.call('UNLINK', approvals .. ':' .. id, answered)
    redis.call('ZREM', kept, id)
    redis.call('ZREM', expiries, member)
    redis.call('ZREM', approvalCards, member)
  end
end
redis.call('HDEL', state, 'summary')
redis.call('HSET', state, 'contextVersion', above(redis.call('HGET', state, 'contextVersion')))
redis.call('UNLINK', events)
return replaced
