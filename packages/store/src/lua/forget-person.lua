-- Removes a session from the index of a person. -> 1 | 0 there are newer messages, perhaps of that person
--
-- KEYS state inbox history who people
-- ARGV
--   sid
--   person
--   known   length of the history as far as the caller knows it

local length = tonumber(redis.call('HGET', state, 'historyBase') or 0) + redis.call('LLEN', history)
if length > tonumber(known) then return 0 end
if redis.call('HGET', state, 'waits:' .. person) then return 0 end
for _, entry in ipairs(redis.call('LRANGE', inbox, 0, -1)) do
  if cjson.decode(string.match(entry, '^%d+:(.*)$')).sender.id == person then return 0 end
end
redis.call('ZREM', people, person .. '|' .. sid)
redis.call('HDEL', who, person)
return 1
