-- Takes the next job.
--
-- KEYS
--   wait             list: ids of jobs that wait, the oldest at its end
--   active           list: ids of jobs that run
--   prioritized      sorted set: ids of jobs that wait and have a priority
--   delayed          sorted set: ids of jobs by the time at which they are due, times 0x1000
--   meta             hash: the settings of the queue
--   marker           sorted set: what idle workers wait for
--   priorityCounter  string: number of prioritized jobs so far
-- ARGV
--   queue   what the keys of the queue begin with
--   nowMs   the time
--   token   of the worker, for the lock
--   lockMs  how long the lock holds unless it is renewed

-- include take

return take(nowMs, token, lockMs)
