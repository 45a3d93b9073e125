-- Takes a message as the answer to an open question, once: it is then known, as one that was answered outside a turn.
-- -> nil nothing is done: no question, or a known or recalled message | answer: settled | closed
--
-- KEYS seen recalled
-- ARGV
--   sid
--   id
--   decision   JSON without the time
--   person     who has written it
--   seenTtlMs  how long the message's id is remembered
--   auditMax

-- include approval-outcome

local before = redis.call('MGET', seen, recalled)
if not text or kind ~= 'question' or before[1] or before[2] then return false end
local over = closed()
if over then return over end
if isExpired then return answer('closed', settle('expired')) end
redis.call('SET', seen, 0, 'PX', seenTtlMs)
redis.call('HSET', answered, 'decisions', '{"atMs":' .. string.format('%.0f', now()) .. ',' .. string.sub(decision, 2))
local v = redis.call('HMGET', asked, 'call', 'facts')
record('approval_decided', sid, v[1], v[2], {result = 'answer', person = person})
return answer('settled', settle('answered'))
