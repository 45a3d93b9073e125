-- A runner reports what a call is doing. -> 1 | 0 answered or not known
--
-- KEYS session calls events handoff
-- ARGV
--   callId
--   channel
--   batch          one event
--   handoffEntry
--   handoffClaims

-- include emit
-- include open-call
-- include handed-in

local call, facts = openCall(callId)
if refusal(facts) or not call then return 0 end
emit(batch, 1)
return 1
