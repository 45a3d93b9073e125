-- Drops the oldest messages of those that no claim hands out any more, and not beyond what is archived.
-- -> how many were dropped
--
-- KEYS state history untended
-- ARGV
--   sid
--   keep       so many of them stay
--   archived   number of the first message that is not archived; '': nothing has to be
--   endedAtMs  the session was looked after as it was at that end of a turn; '': it was not

if endedAtMs ~= '' and redis.call('ZSCORE', untended, sid) == endedAtMs then redis.call('ZREM', untended, sid) end
local v = redis.call('HMGET', state, 'contextStart', 'historyBase')
local start, base = tonumber(v[1] or 0), tonumber(v[2] or 0)
local drop = start - tonumber(keep)
if archived ~= '' then drop = math.min(drop, tonumber(archived) - base) end
if drop <= 0 then return 0 end
redis.call('LTRIM', history, drop, -1)
redis.call('HSET', state, 'contextStart', start - drop, 'historyBase', base + drop)
return drop
