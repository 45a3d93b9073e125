-- Messages of a history are counted from a number on that an archive knows. -> 1 | 0 they are counted from there, or from higher up
--
-- KEYS state
-- ARGV first

if redis.call('EXISTS', state) == 0 then return 0 end
if tonumber(redis.call('HGET', state, 'historyBase') or 0) >= tonumber(first) then return 0 end
redis.call('HSET', state, 'historyBase', first)
return 1
