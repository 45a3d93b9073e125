-- Gives a session back whose run has ended because Redis failed it. A full Redis refuses this script before it writes
-- anything.
--
-- KEYS session dirty state
-- ARGV
--   sid
--   epoch
--   maxUncounted  ends of runs of one message
-- REPLY
--   uncounted  flag     false: there were too many such ends
--   wakeGen    integer  generation to wake the session for, or 0

-- include now

local v = redis.call('HMGET', state, 'epoch', 'headSeq', 'uncounted', 'lost')
local w = redis.call('HMGET', session, 'state', 'generation')
local st, seq = w[1] or 'idle', v[2] or '0'
if v[1] ~= epoch then return respond {uncounted = true, wakeGen = 0} end
if st ~= 'running' and not (st == 'queued' and v[4]) then return respond {uncounted = true, wakeGen = st == 'queued' and w[2] or 0} end
local countedSeq, times = string.match(v[3] or '', '^(%d+):(%d+)$')
times = countedSeq == seq and tonumber(times) or 0
if times >= tonumber(maxUncounted) then return respond {wakeGen = 0} end
redis.call('HSET', state, 'uncounted', seq .. ':' .. (times + 1), 'brokenOff', seq)
redis.call('HSET', session, 'state', 'queued')
redis.call('HDEL', state, 'lost')
redis.call('ZADD', dirty, now(), sid)
return respond {uncounted = true, wakeGen = w[2]}
