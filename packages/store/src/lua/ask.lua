-- Stores new approvals.
--
-- ARGV
--   maxKept   how many of a session are kept, apart from those that are not finished
--   newApprovals  list as JSON, see `approvalArgs`

-- include approvals

-- Removes the oldest finished approvals until there is room for one more.
local function makeRoom()
  redis.call('ZREMRANGEBYSCORE', kept, '-inf', now())
  local tooMany = redis.call('ZCARD', kept) + 1 - maxKept
  if tooMany <= 0 then return end
  for _, id in ipairs(redis.call('ZRANGE', kept, 0, -1)) do
    if tooMany <= 0 then return end
    local asked, answered, member = approvalOf(id)
    if not redis.call('ZSCORE', pending, id) and not redis.call('ZSCORE', approvalCards, member) then
      redis.call('DEL', asked, answered)
      redis.call('ZREM', kept, id)
      tooMany = tooMany - 1
    end
  end
end

-- Has no time to live before it is settled, because its turn waits for the result.
local function ask(new)
  local asked, _, member = approvalOf(new.id)
  if redis.call('EXISTS', asked) == 1 then return end
  makeRoom()
  redis.call('HSET', asked, 'approval', new.approval, 'kind', new.kind, 'turn', new.turnId, 'call', new.callId,
    'expiresAtMs', new.expiresAtMs, 'needed', new.need, 'argumentsHash', new.hash, 'hasCards', new.hasCards, 'facts', new.facts)
  -- Approvals of the same ms keep the order in which they were asked.
  local place = math.min(redis.call('ZCARD', pending), 999) / 1000
  redis.call('ZADD', pending, tonumber(new.createdAtMs) + place, new.id)
  redis.call('ZADD', expiries, new.expiresAtMs, member)
  if new.kind == 'question' then redis.call('HINCRBY', rootSession, 'asks', 1) end
  redis.call('ZADD', kept, tonumber(new.expiresAtMs) + weekMs, new.id)
  redis.call('PEXPIREAT', kept, redis.call('ZREVRANGE', kept, 0, 0, 'WITHSCORES')[2])
  if new.hasCards == '1' then redis.call('ZADD', approvalCards, now() + new.cardsInMs, member) end
  record('approval_requested', sid, new.callId, new.facts, {})
end

local function askAll()
  for _, new in ipairs(cjson.decode(newApprovals)) do ask(new) end
end
