-- Reopens a call that its runner was allowed to start and did not start. Works once for a question, while its answer is kept.
-- -> 1 open again | 0
--
-- KEYS calls handoff answer
-- ARGV
--   callId
--   handoffEntry
--   handoffClaims
--   answerMs

-- include open-call
-- include handed-in

local call, facts = openCall(callId)
if refusal(facts) then return 0 end
if call ~= 'started' or redis.call('GET', answer) ~= 'run' then return 0 end
redis.call('SET', answer, 'closed', 'PX', answerMs)
redis.call('HSET', calls, callId, 'open ' .. facts)
return 1
