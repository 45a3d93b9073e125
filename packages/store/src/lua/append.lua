-- Appends a message to its session, unless it is known or was taken back by its sender.
-- A session of the HTTP API takes messages of one person only, the first one.
-- -> {'accepted' | 'asks' | 'duplicate' | 'full' | 'recalled' | 'foreign', seq, wakeGen, eventSeq or '', ahead, head or ''}
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
if before[2] then return {'recalled', 0, 0, '', 0, ''} end
if chatType == 'api' then
  local owner = redis.call('HKEYS', who)[1]
  if owner and owner ~= person then return {'foreign', 0, 0, '', 0, ''} end
end
if not before[1] then return enqueue(message, mayAnswer == '1') end
local v = redis.call('HMGET', session, 'state', 'generation')
return {'duplicate', before[1], v[1] == 'queued' and v[2] or 0, '', 0, ''}
