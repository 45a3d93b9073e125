-- Finishes a job as a runner does that has no BullMQ: takes it from the active ones and keeps `data`, the JSON of a
-- `FinishedCall`, in one step; a job that is in no list would block its id. -> 1 | 0 it was not active
--
-- KEYS
--   active     list: ids of jobs that run
--   completed  sorted set: ids of jobs that have succeeded, by time
--   failed     sorted set: ids of jobs that have failed, by time
--   job        hash: the job
--   lock       string: the token of the worker that has the job
-- ARGV
--   jobId
--   data
--   queue      what the keys of jobs begin with, without the colon
--   reason     why the call has failed, which its outcome has said already; '' it has not

-- include now

local ended, keptJobs = completed, 200
redis.call('DEL', lock)
if redis.call('LREM', active, 1, jobId) == 0 or redis.call('EXISTS', job) == 0 then return 0 end
redis.call('HSET', job, 'data', data, 'finishedOn', now())
if reason == '' then
  redis.call('HSET', job, 'returnvalue', 'null')
else
  ended, keptJobs = failed, 1000
  redis.call('HSET', job, 'failedReason', reason, 'stacktrace', '[]', 'settled', 1)
end
redis.call('HINCRBY', job, 'atm', 1)
redis.call('ZADD', ended, now(), jobId)
for _, old in ipairs(redis.call('ZREVRANGE', ended, keptJobs, -1)) do redis.call('DEL', queue .. ':' .. old) end
redis.call('ZREMRANGEBYRANK', ended, 0, -keptJobs - 1)
return 1
