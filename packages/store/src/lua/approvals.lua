-- Each approval has two hashes, `<approvals>:<id>` and `<said>:<id>`. The record only workers may write: the approval as
-- it was created (approval) and what the scripts need of it (kind, turn, call, expiresAtMs, needed, argumentsHash as
-- JSON, hasCards, facts for the audit log). What was said, ingress writes, too, and workers check before they believe
-- it: state and settledAtMs (none: pending), who has said what (decisions: JSON objects joined by commas;
-- count:<word> counts and by:<word>:<person> names them), and the cards: `cards`, how often what they are to show has
-- changed (changes) and what of that the holder of their lease has seen (seenChanges), leaseToken, leaseUntil, tries.
-- Of one whose buttons stand on the card of the reply: reasonAskedAtMs, when its requester was last asked for a reason.
--
-- Beside them the session counts its open questions (asks): a message of a person who was asked may be the answer. People
-- write to the root, so it counts those of its helpers, too.
--
-- KEYS session approvals pending kept expiries approvalCards said
-- ARGV sid

-- include now
-- include audit

-- As `weekMs` of approval-store.ts.
local weekMs = 604800000
local rootSession = string.gsub(session, '~%x+$', '')
local function approvalOf(id) return approvals .. ':' .. id, said .. ':' .. id, sid .. '|' .. id end

-- The holder of the lease sees the change when it writes; without a holder the cards are due at once.
local function changeCards(id)
  local asked, answered, member = approvalOf(id)
  if redis.call('HGET', asked, 'hasCards') ~= '1' then return end
  redis.call('HINCRBY', answered, 'changes', 1)
  redis.call('HDEL', answered, 'tries')
  if tonumber(redis.call('HGET', answered, 'leaseUntil') or 0) <= now() then redis.call('ZADD', approvalCards, now(), member) end
end

local function become(id, result)
  local asked, answered, member = approvalOf(id)
  local v = redis.call('HMGET', asked, 'expiresAtMs', 'call', 'facts', 'kind')
  redis.call('HSET', answered, 'state', result, 'settledAtMs', now())
  for _, key in ipairs({asked, answered}) do
    redis.call('PEXPIREAT', key, math.max(tonumber(v[1]), now()) + weekMs)
  end
  redis.call('ZREM', pending, id)
  redis.call('ZREM', expiries, member)
  if v[4] == 'question' and redis.call('HINCRBY', rootSession, 'asks', -1) <= 0 then
    redis.call('HDEL', rootSession, 'asks')
  end
  changeCards(id)
  record('approval_settled', sid, v[2], v[3], {result = result})
end

-- Cancels the questions of a turn that has ended, or of all turns if none is named.
local function cancelApprovals(ids, turn)
  for _, id in ipairs(ids) do
    local v = redis.call('HMGET', (approvalOf(id)), 'kind', 'turn')
    if v[1] ~= 'rule' and (not turn or v[2] == turn) then become(id, 'cancelled') end
  end
end
