-- While a call is open its entry in the ledger is its state and, after a blank, what the audit log says of it. Beside it
-- `answer <call>` names the key of the answer that let it begin with an identity, which ends with its call, and
-- `began <call>` says when a call began that may begin again for a while, or look for what it has made.
--
-- KEYS calls

-- -> 'open' | 'started', facts; nil when it is answered or not known
local function openCall(callId)
  local entry = redis.call('HGET', calls, callId)
  if not entry or entry == 'done' then return nil end
  return string.match(entry, '^(%a+) ?(.*)$')
end

-- `facts`: of the call; one without an identity has no such answer.
local function removeAnswer(callId, facts)
  if not string.find(facts, '"as":', 1, true) then return end
  local answer = redis.call('HGET', calls, 'answer ' .. callId)
  if not answer then return end
  redis.call('UNLINK', answer)
  redis.call('HDEL', calls, 'answer ' .. callId)
end
