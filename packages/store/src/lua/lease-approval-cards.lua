-- Leases the cards of one approval to one process.
--
-- KEYS approval answers approvalCards
-- ARGV
--   member   of approvalCards
--   token    of the process, for as long as it has the right
--   leaseMs  how long that is
-- REPLY nil
-- REPLY
--   approval     text     JSON
--   state        text
--   decisions    text     JSON objects joined by commas
--   settledAtMs  integer?
--   cards        text?    JSON
--   attempts     integer  earlier leases since the cards last had to change

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
return respond {approval = text, state = v[1] or 'pending', decisions = v[2] or '', settledAtMs = v[3], cards = v[4], attempts = tries - 1}
