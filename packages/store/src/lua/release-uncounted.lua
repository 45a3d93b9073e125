-- Does not count a failure of Redis as a try of the message. A full Redis refuses this script before it writes anything.
-- -> {uncounted, generation that is to be woken or 0}
--
-- KEYS session dirty state
-- ARGV
--   sid
--   epoch
--   maxUncounted  ends of runs of one message

-- include now

local v = redis.call('HMGET', state, 'epoch', 'headSeq', 'counted', 'excused', 'lost')
local w = redis.call('HMGET', session, 'state', 'generation')
local st, seq = w[1] or 'idle', v[2] or '0'
local excusedSeq, times = string.match(v[4] or '', '^(%d+):(%d+)$')
times = excusedSeq == seq and tonumber(times) or 0
local isHeld = v[1] == epoch
local counted, countedAs = string.match(v[3] or '', '^(%d+:%d+):(%a+)$')
local isCounted = counted == epoch .. ':' .. seq
local isLost = isHeld and (st == 'running' or (st == 'queued' and v[5]))
if isCounted or isLost then
  if times >= tonumber(maxUncounted) then return {0, 0} end
  redis.call('HSET', state, 'excused', seq .. ':' .. (times + 1))
end
if isCounted then
  redis.call('HDEL', state, 'counted')
  redis.call('HINCRBY', state, 'tries', -1)
  if countedAs ~= 'tries' then redis.call('HINCRBY', state, countedAs, -1) end
end
if isLost then
  redis.call('HSET', session, 'state', 'queued')
  redis.call('HDEL', state, 'lost')
  redis.call('ZADD', dirty, now(), sid)
end
return {1, isHeld and (isLost or st == 'queued') and w[2] or 0}
