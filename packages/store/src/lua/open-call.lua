-- While a call is open its entry in the ledger is its state and, after a blank, what the audit log says of it.
--
-- KEYS calls

-- -> 'open' | 'started', facts; nil when it is answered or not known
local function openCall(callId)
  local entry = redis.call('HGET', calls, callId)
  if not entry or entry == 'done' then return nil end
  return string.match(entry, '^(%a+) ?(.*)$')
end
