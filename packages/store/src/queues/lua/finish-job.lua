-- Finishes a job that has succeeded, as BullMQ 6's moveToFinished does for one without parent, children and
-- deduplication, in a queue without metrics. Writes no events: no process reads them. Then takes the next job.
--
-- KEYS
--   wait             list: ids of jobs that wait, the oldest at its end
--   active           list: ids of jobs that run
--   prioritized      sorted set: ids of jobs that wait and have a priority
--   delayed          sorted set: ids of jobs by the time at which they are due, times 0x1000
--   meta             hash: the settings of the queue
--   marker           sorted set: what idle workers wait for
--   priorityCounter  string: number of prioritized jobs so far
--   stalled          set: ids of jobs that are stalled unless their lock is renewed
--   completed        sorted set: ids of jobs that have succeeded, by time
--   job              hash: the job
--   lock             string: the token of the worker that has the job
-- ARGV
--   queue      what the keys of the queue begin with
--   nowMs      the time
--   token      of the worker: of the lock, and for the next job
--   lockMs     how long the lock of the next job holds unless it is renewed
--   id         of the job
--   data       takes the place of the job's data; '' leaves that as it is
--   maxCount   how many jobs that have succeeded stay
--   maxAgeMs   and for how long
--   fetchNext  '1' to take the next job
-- REPLY refused
--   code  integer  as BullMQ has it: -1 the job is gone, -2 its lock has run out, -6 another worker has it, -3 it is not active
-- REPLY finished

-- include take

local function remove(ids, step)
  for index = 1, #ids, step do
    local old = queue .. ids[index]
    redis.call(
      'DEL', old, old .. ':logs', old .. ':dependencies', old .. ':processed', old .. ':failed', old .. ':unsuccessful')
  end
end

-- A job that was added has a 'timestamp', one that was taken 'ats'; 'atm' is how often it has ended.
local facts = redis.call('HMGET', job, 'timestamp', 'ats', 'atm')
if not facts[1] and not facts[2] then return respond('refused', {code = -1}) end
local holder = redis.call('GET', lock)
if holder ~= token then return respond('refused', {code = holder and -6 or -2}) end
redis.call('DEL', lock)
redis.call('SREM', stalled, id)
if redis.call('LREM', active, -1, id) == 0 then
  if data ~= '' then redis.call('HSET', job, 'data', data) end
  return respond('refused', {code = -3})
end
local fields = {'atm', (facts[3] or 0) + 1, 'returnvalue', 'null', 'finishedOn', nowMs}
if data ~= '' then
  fields[#fields + 1] = 'data'
  fields[#fields + 1] = data
end
redis.call('HSET', job, unpack(fields))
redis.call('ZADD', completed, nowMs, id)

local excess = redis.call('ZCARD', completed) - maxCount
local removed = excess > 0 and redis.call('ZPOPMIN', completed, excess) or {}
remove(removed, 2)
-- What stays may be too old as well, unless the last one that was removed was not.
local oldestMs = nowMs - maxAgeMs
if #removed == 0 or tonumber(removed[#removed]) <= oldestMs then
  local old = redis.call('ZRANGEBYSCORE', completed, '-inf', oldestMs)
  remove(old, 1)
  if #old > 0 then redis.call('ZREMRANGEBYSCORE', completed, '-inf', oldestMs) end
end

if fetchNext ~= '1' then return respond('finished') end
if redis.call('EXISTS', wait, prioritized, priorityCounter, delayed) == 0 then return respond('none', {dueMs = 0}) end
return take(nowMs, token, lockMs)
