-- Adds one job, as BullMQ 6's addStandardJob and addPrioritizedJob do with an id of the caller's choice. BullMQ ignores
-- a job whose id it knows, one that has finished and is kept included; this replaces a finished one, unless it was just
-- answered, and leaves alone one that is waiting, active or delayed. Writes no events: no process reads them.
--
-- KEYS
--   wait             list: ids of jobs that wait, the oldest at its end
--   active           list: ids of jobs that run
--   prioritized      sorted set: ids of jobs that wait and have a priority
--   meta             hash: the settings of the queue
--   marker           sorted set: what idle workers wait for
--   priorityCounter  string: number of prioritized jobs so far
--   completed        sorted set: ids of jobs that have succeeded, by time
--   failed           sorted set: ids of jobs that have failed, by time
--   job              hash: the job
-- ARGV
--   id         of the job
--   name       of the job
--   data       of the job, JSON
--   options    of the job as BullMQ stores them, JSON
--   nowMs      the time
--   priority   0, or above 0 for a job that comes after all without one
--   maxEvents  of the queue's stream of events, unless its settings have that already
--   recentMs   a job of this id that was answered within so many ms is left alone
--
-- Gives 1 if the job was added, 0 if one of its id is waiting, active or delayed, or was just answered.

if redis.call('EXISTS', job) == 1 then
  -- Answered: it has succeeded, and so has a return value, or has failed and its session knows that. A time to come is
  -- that of a wrong clock, and holds nothing up.
  local ended = redis.call('HMGET', job, 'finishedOn', 'returnvalue', 'settled')
  local endedMs = (ended[2] or ended[3] == '1') and tonumber(ended[1])
  local agoMs = endedMs and nowMs - endedMs
  if agoMs and agoMs >= 0 and agoMs < tonumber(recentMs) then return 0 end
  if redis.call('ZREM', completed, id) + redis.call('ZREM', failed, id) == 0 then return 0 end
  redis.call('DEL', job)
end
redis.call('HSET', job, 'name', name, 'data', data, 'opts', options, 'timestamp', nowMs, 'delay', 0, 'priority', priority)
if priority == '0' then
  redis.call('LPUSH', wait, id)
else
  redis.call('ZADD', prioritized, priority * 0x100000000 + redis.call('INCR', priorityCounter) % 0x100000000, id)
end
local queue = redis.call('HMGET', meta, 'paused', 'concurrency', 'opts.maxLenEvents')
if not queue[3] then redis.call('HSET', meta, 'opts.maxLenEvents', maxEvents) end
local isMaxed = queue[2] and redis.call('LLEN', active) >= tonumber(queue[2])
if not queue[1] and not isMaxed then redis.call('ZADD', marker, 0, '0') end
return 1
