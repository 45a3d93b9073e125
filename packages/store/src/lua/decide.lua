-- A person has answered an approval. -> nil unknown | answer: settled | counted | repeated | closed
--
-- ARGV
--   sid
--   id
--   word            what was said
--   about           kind that the word belongs to: outcome or question; '': any other one
--   person          who has said it
--   whose           whose deed it is in the audit log
--   decision        JSON without the time
--   stateAfter      the approval's state when enough have said it
--   settlesAlone    '1': one is enough
--   auditMax

-- include approval-outcome

if not text or ((kind == 'outcome' or kind == 'question') and kind or '') ~= about then return false end
local over = closed()
if over then return over end
if isExpired then return answer('closed', settle('expired')) end
if redis.call('HSETNX', answered, 'by:' .. word .. ':' .. person, 1) == 0 then return answer('repeated') end
local before, v = redis.call('HGET', answered, 'decisions'), redis.call('HMGET', asked, 'needed', 'call', 'facts')
local said = '{"atMs":' .. string.format('%.0f', now()) .. ',' .. string.sub(decision, 2)
redis.call('HSET', answered, 'decisions', before and before .. ',' .. said or said)
record('approval_decided', sid, v[2], v[3], {result = word, person = whose})
local agreeing = redis.call('HINCRBY', answered, 'count:' .. word, 1)
if settlesAlone == '1' or agreeing >= tonumber(v[1]) then return answer('settled', settle(stateAfter)) end
changeCards(id)
return answer('counted')
