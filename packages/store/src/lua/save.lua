-- Stores where a turn is: its checkpoint, what it has said, the calls and questions that it has opened.
--
-- KEYS session control calls deadlines dirty history events inbox requests state
-- KEYS audit approvals pending kept expiries approvalCards said people children
-- ARGV
--   epoch
--   sid
--   turn       the checkpoint, sealed
--   consumed   how many control entries it has read
--   mode       continue, suspend or handoff
--   wakeAtMs   when a suspended turn is woken whatever comes; '': not
--   channel
--   batch      its events
--   batchSize  how many those are
--   keep       how many messages the context keeps; '': all as before
--   summary    what stands for the others, sealed, or ''
--   needs      features that a process must have to continue it, JSON, or ''
--   waits      the person whose decision it waits for, and for nothing else, or ''
--   opened     calls as a JSON list of {callId, deadlineMs, facts, child}, or ''
--   newApprovals  as a JSON list, or ''
--   asker      of a child session, which gets what it waits for, JSON, or ''
--   absorbed   numbers of messages that have joined it, as a JSON list, or ''
--   maxKept
--   auditMax
--   messages...  of its history, JSON each
-- REPLY fenced
-- REPLY suspended
--   wakeGen  integer?  others may continue
-- REPLY running
--   control  texts  entries that it has not read

-- include wake
-- include requests
-- include switch-turns
-- include emit
-- include context
-- include audit
-- include children

local v = redis.call('HMGET', state, 'epoch', 'needs', 'absorbed')
if v[1] ~= epoch then return respond('fenced') end
local fields = {'turn', turn}
local function set(field, value)
  table.insert(fields, field)
  table.insert(fields, value)
end
if needs ~= '' then set('needs', needs) elseif v[2] then redis.call('HDEL', state, 'needs') end
if consumed ~= '0' then redis.call('LTRIM', control, consumed, -1) end
if #messages > 0 then redis.call('RPUSH', history, unpack(messages)) end
setContext(keep, summary)
emit(batch, tonumber(batchSize))
if absorbed ~= '' then
  local isAbsorbed, joined = {}, v[3] or ','
  for _, seq in ipairs(cjson.decode(absorbed)) do isAbsorbed[seq] = true end
  for _, queued in ipairs(redis.call('LRANGE', inbox, 1, -1)) do
    if isAbsorbed[tonumber(seqOf(queued))] then
      redis.call('LREM', inbox, 1, queued)
      joined = joined .. seqOf(queued) .. ','
    end
  end
  set('absorbed', joined)
end
redis.call('HSET', state, unpack(fields))
if opened ~= '' then
  for _, call in ipairs(cjson.decode(opened)) do
    if redis.call('HSETNX', calls, call.callId, 'open ' .. call.facts) == 1 then
      redis.call('ZADD', deadlines, call.deadlineMs, sid .. '|' .. call.callId)
      record('call_opened', sid, call.callId, call.facts, {})
      if call.child then openChild(call.child) end
    end
  end
end
if newApprovals ~= '' then
-- include ask
  askAll()
end
if asker ~= '' then tellAsker(cjson.decode(asker)) end
-- The worker that was taken for dead has written all the same: its later death says nothing of this turn.
local function forgetLoss() redis.call('HDEL', state, 'lost') end
if mode == 'handoff' then
  forgetLoss()
  redis.call('HSET', session, 'state', 'queued')
  redis.call('ZADD', dirty, now(), sid)
  return respond('suspended', {})
end
takeRequests()
local unread = redis.call('LRANGE', control, 0, -1)
if mode == 'suspend' and #unread == 0 then
  keepEvents()
  forgetLoss()
  if waits ~= '' then
    redis.call('HSET', state, 'waits', waits)
    if setAsideTurnWithNews() or firstFree(waits) then
      return respond('suspended', {wakeGen = wake(redis.call('HGET', session, 'generation'))})
    end
  end
  if wakeAtMs ~= '' then redis.call('ZADD', deadlines, wakeAtMs, sid .. '|') end
  suspend()
  return respond('suspended', {})
end
redis.call('ZADD', dirty, now(), sid)
return respond('running', {control = unread})
