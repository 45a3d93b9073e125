-- Cancels a turn, or the one that runs if none is named. A waiting message leaves the inbox, and its run is logged as done.
--
-- KEYS session inbox requests dirty events state
-- ARGV
--   sid
--   seq        number of the turn; '': the one at the head
--   entry      of the list of requests, JSON
--   channel
--   doneBatch  the event that ends a waiting message's run
-- REPLY
--   accepted  flag
--   wakeGen   integer  generation to wake the session for, or 0

-- include wake
-- include set-aside
-- include emit

local v = redis.call('HMGET', session, 'state', 'generation')
local st = v[1] or 'idle'
if st == 'idle' then return respond {wakeGen = 0} end
local joined = redis.call('HGET', state, 'absorbed') or ''
-- Removes a message that no turn has begun. Its run ends with an event.
local function takeOut(queued)
  redis.call('LREM', inbox, 1, queued)
  emit(doneBatch, 1)
  keepEvents()
  return respond {accepted = true, wakeGen = 0}
end
local first = head()
-- While turns are set aside, a claim may bring one of them to the head instead, which would read a cancel that is not its own.
if st == 'queued' and seqOf(first) == seq and turnsSetAside() ~= ',' and not hasBegun(first) then return takeOut(first) end
if seq == '' or seqOf(first) == seq or string.find(joined, ',' .. seq .. ',', 1, true) then
  redis.call('RPUSH', requests, entry)
  if st == 'suspended' then return respond {accepted = true, wakeGen = wake(v[2])} end
  return respond {accepted = true, wakeGen = 0}
end
if setAsideTurnOf(seq) then
  redis.call('RPUSH', requests, entry)
  -- If another turn runs or waits for calls, the cancel is read after that.
  if st == 'suspended' and redis.call('HGET', state, 'waits') then return respond {accepted = true, wakeGen = wake(v[2])} end
  return respond {accepted = true, wakeGen = 0}
end
for _, queued in ipairs(redis.call('LRANGE', inbox, 1, -1)) do
  if seqOf(queued) == seq then return takeOut(queued) end
end
return respond {wakeGen = 0}
