-- Reopens a call that its runner was allowed to start and did not start. Works once for a question, while its answer is kept.
-- A question that is not answered yet gets the answer `closed`, so that its call does not start later.
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
local given = redis.call('GET', answer)
if call ~= 'started' or not given or string.sub(given, 1, 3) ~= 'run' then
  if call and not given then redis.call('SET', answer, 'closed', 'PX', answerMs) end
  return 0
end
redis.call('SET', answer, 'closed', 'PX', answerMs)
redis.call('HDEL', calls, 'answer ' .. callId)
redis.call('HSET', calls, callId, 'open ' .. facts)
return 1
