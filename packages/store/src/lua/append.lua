-- Appends a message to its session, unless it is known or was taken back by its sender.
-- A session of the HTTP API takes messages of one person only, the first one.
--
-- KEYS session inbox dirty seen recalled highest who people state
-- ARGV
--   sid
--   message     JSON
--   seenTtlMs
--   maxWaiting
--   person
--   chatType
--   mayAnswer   '1': it may be the answer to an open question

-- include enqueue

local before = redis.call('MGET', seen, recalled)
if before[2] then return respond {result = 'recalled', seq = 0, wakeGen = 0, ahead = 0} end
if chatType == 'api' then
  local owner = redis.call('HKEYS', who)[1]
  if owner and owner ~= person then return respond {result = 'foreign', seq = 0, wakeGen = 0, ahead = 0} end
end
if not before[1] then return respond(enqueue(message, mayAnswer == '1')) end
local v = redis.call('HMGET', session, 'state', 'generation')
return respond {result = 'duplicate', seq = before[1], wakeGen = v[1] == 'queued' and v[2] or 0, ahead = 0}
