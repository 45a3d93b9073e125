-- Each approval has two hashes, `<approvals>:<id>` and `<said>:<id>`. The record only workers may write: the approval as
-- it was created (a) and what the scripts need of it (kind, turn, call, exp, need, hash as JSON, hc: has any cards, f for
-- the audit log). What was said, ingress writes, too, and workers check before they believe it: state (st, at; none:
-- pending), who has said what (dec: JSON objects joined by commas; n:<word> counts and by:<word>:<person> tells them),
-- and cards (cards; v counts what they are to show, cv what the holder of the lease has seen; ct and cu: token and end
-- of the lease; tries).
--
-- KEYS approvals pending kept expiries approvalCards said
-- ARGV sid

-- include now
-- include audit

local weekMs = 604800000
local function approvalOf(id) return approvals .. ':' .. id, said .. ':' .. id, sid .. '|' .. id end

-- Who holds the cards learns of a change when they write; otherwise they are due at once.
local function changeCards(id)
  local asked, answered, member = approvalOf(id)
  if redis.call('HGET', asked, 'hc') ~= '1' then return end
  redis.call('HINCRBY', answered, 'v', 1)
  redis.call('HDEL', answered, 'tries')
  if tonumber(redis.call('HGET', answered, 'cu') or 0) <= now() then redis.call('ZADD', approvalCards, now(), member) end
end

local function become(id, result)
  local asked, answered, member = approvalOf(id)
  local v = redis.call('HMGET', asked, 'exp', 'call', 'f')
  redis.call('HSET', answered, 'st', result, 'at', now())
  for _, key in ipairs({asked, answered}) do
    redis.call('PEXPIREAT', key, math.max(tonumber(v[1]), now()) + weekMs)
  end
  redis.call('ZREM', pending, id)
  redis.call('ZREM', expiries, member)
  changeCards(id)
  record('approval_settled', sid, v[2], v[3], {result = result})
end

-- The end of a turn, or of all if none is named: its questions are over.
local function cancelApprovals(ids, turn)
  for _, id in ipairs(ids) do
    local v = redis.call('HMGET', (approvalOf(id)), 'kind', 'turn')
    if v[1] ~= 'rule' and (not turn or v[2] == turn) then become(id, 'cancelled') end
  end
end
