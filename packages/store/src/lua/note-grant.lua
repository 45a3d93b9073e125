-- Notes something beside a grant that is there: its last use by a tool, a refresh that failed, a warning. -> 1 | 0
--
-- KEYS grant
-- ARGV
--   facts      names and values as a JSON list
--   maxFields  that a grant may have, so that no list of tools grows without end

if redis.call('EXISTS', grant) == 0 then return 0 end
local list = cjson.decode(facts)
if redis.call('HEXISTS', grant, list[1]) == 0 and redis.call('HLEN', grant) >= tonumber(maxFields) then return 0 end
redis.call('HSET', grant, unpack(list))
return 1
