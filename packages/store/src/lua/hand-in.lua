-- A runner hands an entry in. The worker that handed the call out is notified; if no process listens there, or the name is
-- empty, every worker. -> id of the entry
--
-- KEYS handoff
-- ARGV
--   entry          JSON
--   mac            its HMAC with the runner's key
--   ring           notification for workers, JSON
--   workerChannel  of the worker that handed the call out, or ''
--   channel        of all workers

local id = redis.call('XADD', handoff, '*', 'e', entry, 'm', mac)
if workerChannel == '' or redis.call('PUBLISH', workerChannel, ring) == 0 then redis.call('PUBLISH', channel, ring) end
return id
