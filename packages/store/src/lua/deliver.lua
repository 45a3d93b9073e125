-- Stores the outcome of a call; the first one wins.
--
-- KEYS session control dirty calls deadlines audit handoff requests
-- ARGV
--   sid
--   callId
--   entry         of the control list, JSON
--   result        for the audit log
--   runner        for the audit log
--   unlessStarted  '1': a call that was started stays as it is
--   handoffEntry
--   handoffClaims
--   auditMax
-- REPLY
--   accepted  flag
--   wakeGen   integer  generation to wake the session for, or 0
--   refusal   'foreign'|'taken'?  of the hand-off's entry
--   unread    integer  entries that a running session has to read, this one included, or 0

-- include wake
-- include audit
-- include open-call
-- include handed-in

local call, facts = openCall(callId)
local refused = refusal(facts)
if refused then return respond {wakeGen = 0, refusal = refused, unread = 0} end
if unlessStarted == '1' and call == 'started' then return respond {wakeGen = 0, unread = 0} end
redis.call('ZREM', deadlines, sid .. '|' .. callId)
local v = redis.call('HMGET', session, 'state', 'generation')
local st = v[1] or 'idle'
if not call then return respond {wakeGen = st == 'queued' and v[2] or 0, unread = 0} end
redis.call('HSET', calls, callId, 'done')
removeAnswer(callId, facts)
local unread = redis.call('RPUSH', control, entry)
record('call_ended', sid, callId, facts, {result = result, runner = runner})
if st == 'suspended' or st == 'idle' then return respond {accepted = true, wakeGen = wake(v[2]), unread = 0} end
return respond {accepted = true, wakeGen = 0, unread = st == 'running' and unread + redis.call('LLEN', requests) or 0}
