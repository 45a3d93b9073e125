-- Which failed jobs are not settled: nothing says that their sessions know how they have failed.
--
-- KEYS
--   failed  sorted set: ids of jobs that have failed, by time
-- ARGV
--   queue  what the keys of the queue begin with
--
-- -> id of each of them, the newest first

local ids = {}
for _, id in ipairs(redis.call('ZREVRANGE', failed, 0, -1)) do
  if redis.call('HGET', queue .. id, 'settled') ~= '1' then ids[#ids + 1] = id end
end
return ids
