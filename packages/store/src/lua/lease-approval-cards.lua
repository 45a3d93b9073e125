-- Leases the cards of one approval to one process. -> nil | {approval, state, decisions, settledAtMs or '', cards or '', attempts}
--
-- KEYS approval answers approvalCards
-- ARGV
--   member   of approvalCards
--   token    of the process, for as long as it has the right
--   leaseMs  how long that is

-- include now

local dueAtMs = redis.call('ZSCORE', approvalCards, member)
if not dueAtMs or tonumber(dueAtMs) > now() then return false end
local text = redis.call('HGET', approval, 'approval')
if not text then
  redis.call('ZREM', approvalCards, member)
  return false
end
local v = redis.call('HMGET', answers, 'state', 'decisions', 'settledAtMs', 'cards', 'changes')
local untilMs = now() + tonumber(leaseMs)
redis.call('ZADD', approvalCards, untilMs, member)
redis.call('HSET', answers, 'leaseToken', token, 'leaseUntil', untilMs, 'seenChanges', v[5] or '0')
local tries = redis.call('HINCRBY', answers, 'tries', 1)
return {text, v[1] or 'pending', v[2] or '', v[3] or '', v[4] or '', tries - 1}
