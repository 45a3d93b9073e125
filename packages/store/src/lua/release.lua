-- Moves a parked message into its session, once. It stays parked while the session is full.
--
-- KEYS session inbox dirty seen parked highest who people state
-- ARGV
--   sid
--   action      append or drop
--   seenTtlMs
--   maxWaiting
--   person
--   chatType
-- REPLY nil

-- include enqueue

local message = redis.call('GET', parked)
if not message then return false end
local released = {result = 'accepted', seq = 0, wakeGen = 0, ahead = 0}
if action == 'append' then released = enqueue(message) end
if released.result == 'accepted' then redis.call('DEL', parked) end
return respond(released)
