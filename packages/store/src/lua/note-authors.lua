-- Notes people whose words the history of a session is about to hold, so that an export or a deletion finds them.
--
-- KEYS who people
-- ARGV
--   sid
--   persons   JSON list of ids

for _, person in ipairs(cjson.decode(persons)) do
  redis.call('HSET', who, person, 'group')
  redis.call('ZADD', people, 0, person .. '|' .. sid)
end
