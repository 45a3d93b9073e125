-- Moves a parked message into its session, once. It stays parked while the session is full.
-- -> nil not parked | as append
--
-- KEYS session inbox dirty seen parked highest who people state
-- ARGV
--   sid
--   action      append or drop
--   seenTtlMs
--   maxWaiting
--   person
--   chatType

-- include enqueue

local message = redis.call('GET', parked)
if not message then return false end
local released = {'accepted', 0, 0, '', 0, ''}
if action == 'append' then released = enqueue(message) end
if released.err then return released end
if released[1] == 'accepted' then redis.call('DEL', parked) end
return released
