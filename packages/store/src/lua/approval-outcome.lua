-- Shared by deciding and settling one approval.
--
-- KEYS session inbox requests dirty state
-- ARGV
--   sid
--   id   of the approval
-- REPLY nil
-- REPLY
--   result       'settled'|'counted'|'repeated'|'closed'
--   approval     text     JSON
--   state        text
--   decisions    text     JSON objects joined by commas
--   settledAtMs  integer?
--   wakeGen      integer  generation to wake the session for, or 0

-- include wake
-- include set-aside
-- include approvals

local asked, answered, member = approvalOf(id)
local text, kind, turn, expiresAtMs = unpack(redis.call('HMGET', asked, 'approval', 'kind', 'turn', 'expiresAtMs'))
local known = redis.call('HGET', answered, 'state') or 'pending'
local gate = redis.call('HMGET', session, 'state', 'generation')
gate = {st = gate[1] or 'idle', gen = gate[2]}
local isExpired = expiresAtMs and tonumber(expiresAtMs) <= now()
local isAtHead = gate.st ~= 'idle' and turn == sid .. '-' .. (seqOf(head()) or '')
local othersWait = redis.call('HGET', state, 'waits')

local function answer(result, gen)
  local s = redis.call('HMGET', answered, 'state', 'decisions', 'settledAtMs')
  return respond {result = result, approval = text, state = s[1] or 'pending', decisions = s[2] or '', settledAtMs = s[3], wakeGen = gen or 0}
end

-- Settles the approval, and adds the decision to the session if its turn waits for it. -> wakeGen
local function settle(result)
  become(id, result)
  if kind == 'rule' then
    -- No turn waits for it: the worker that looks after its cards writes the rule, also where it has no cards.
    if result == 'approved' and redis.call('HGET', asked, 'hasCards') ~= '1' then
      redis.call('ZADD', approvalCards, now(), member)
    end
    return 0
  end
  redis.call('RPUSH', requests, '{"type":"decision","turnId":"' .. turn .. '","approvalId":"' .. id .. '","argumentsHash":'
    .. redis.call('HGET', asked, 'argumentsHash') .. ',"state":"' .. result .. '","decisions":['
    .. (redis.call('HGET', answered, 'decisions') or '') .. ']}')
  -- For a turn set aside while another one waits for calls, the session is woken after that.
  return gate.st == 'suspended' and (isAtHead or othersWait) and wake(gate.gen) or 0
end

-- Whether there is nothing to decide any more. The question of a turn that is over is cancelled. -> nil | answer
local function closed()
  if known == 'pending' and kind ~= 'rule' and not isAtHead and not setAsideTurnOf(numberOf(turn)) then
    become(id, 'cancelled')
    return answer('closed')
  end
  if known == 'pending' then return nil end
  return answer('closed', gate.st == 'queued' and gate.gen)
end
