-- One stream entry and one publication per batch of events; the entry's id is the number of its last event.
--
-- KEYS session events
-- ARGV channel

-- The stream is kept for a day after its session has done something that others may look for later, and by the data
-- keeper for as long after its last turn (`eventsKeptMs`).
local function keepEvents() redis.call('PEXPIRE', events, 86400000) end
local function emit(batch, count)
  if count == 0 then return end
  local last = redis.call('HINCRBY', session, 'eventSeq', count)
  redis.call('XADD', events, 'MAXLEN', '~', 2000, last .. '-0', 'n', count, 'd', batch)
  redis.call('PUBLISH', channel, (last - count + 1) .. ':' .. batch)
end
