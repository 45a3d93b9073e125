-- A runner hands in the outcome of a call about which it has said nothing before. As `hand-in`; but the worker that
-- handed the call out receives the entry itself, and need not read it from the stream.
-- -> id of the entry
--
-- KEYS handoff
-- ARGV
--   entry          JSON
--   mac            its HMAC with the runner's key
--   ring           notification for workers, JSON
--   workerChannel  of the worker that handed the call out
--   channel        of all workers

local id = redis.call('XADD', handoff, '*', 'e', entry, 'm', mac)
local whole = string.sub(ring, 1, -2) .. ',"id":"' .. id .. '","mac":"' .. mac .. '","entry":' .. cjson.encode(entry) .. '}'
if redis.call('PUBLISH', workerChannel, whole) == 0 then redis.call('PUBLISH', channel, ring) end
return id
