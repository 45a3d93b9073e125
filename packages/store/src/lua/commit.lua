-- Ends the turn at the head of the inbox: its history, its events, and its reply in the outbox.
--
-- KEYS session inbox control calls deadlines dirty history events outbox due ended untended requests state
-- KEYS audit approvals pending kept expiries approvalCards said
-- ARGV
--   epoch
--   sid
--   seq        number of the turn
--   more       '1': the caller takes the next turn, too
--   channel
--   batch      its events
--   batchSize  how many those are
--   reply      for the outbox, JSON, or ''
--   token      with which the caller may send the reply
--   leaseMs    and for how long
--   keep       how many messages the context keeps; '': all as before
--   summary    what stands for the others, sealed, or ''
--   settings   of the session, sealed; '': as before
--   totals     of the session, JSON; '': as before
--   needs      features that a process must have to continue the session, JSON, or ''
--   asker      of a child session, which gets its end, JSON, or ''
--   helpers    '1': the turn had some, whose steps were counted
--   auditMax
--   messages...  of its history, JSON each
-- REPLY fenced
-- REPLY idle
--   deliver   text?    the reply that the caller is to send now, JSON
--   askerGen  integer  generation to wake the asker's session for, or 0
-- REPLY next
--   deliver  text?
--   head     text  the caller has its turn
-- REPLY requeue
--   deliver  text?
--   wakeGen  integer

-- include wake
-- include requests
-- include switch-turns
-- include emit
-- include context
-- include lease
-- include audit
-- include end-calls

local v = redis.call('HMGET', state, 'epoch', 'asides')
if v[1] ~= epoch then return respond('fenced') end
noteTurnsSetAside(v[2])
-- A turn that was committed before is not committed again, even under the same epoch.
local entries = redis.call('LRANGE', inbox, 0, 1)
if (seqOf(entries[1] or '') or '0') ~= seq then return respond('fenced') end
redis.call('LPOP', inbox)
if #messages > 0 then redis.call('RPUSH', history, unpack(messages)) end
setContext(keep, summary)
if settings ~= '' then redis.call('HSET', state, 'settings', settings) end
if totals ~= '' then redis.call('HSET', state, 'totals', totals) end
emit(batch, tonumber(batchSize))
keepEvents()
redis.call('ZREM', deadlines, sid .. '|')
endCalls()
local asked = redis.call('ZRANGE', pending, 0, -1)
if #asked > 0 then
-- include approvals
  cancelApprovals(asked, sid .. '-' .. seq)
end
redis.call('HDEL', state, 'turn', 'absorbed', 'needs', 'lost')
if needs ~= '' then redis.call('HSET', state, 'needs', needs) end
-- Entries for turns that are set aside are stored with those turns.
if turnsSetAside() ~= ',' then takeRequests() end
redis.call('DEL', control, calls, requests)
local askerGen = 0
if asker ~= '' then askerGen = answerAsker(cjson.decode(asker))
else
  if helpers == '1' then redis.call('HDEL', children, 'steps ' .. sid .. '-' .. seq) end
  redis.call('ZADD', ended, now(), sid)
  redis.call('ZADD', untended, now(), sid)
end
local first = entries[2] or ''
local isOver = first == '' and turnsSetAside() == ','
local leased, isIdle = nil, false
if reply ~= '' then
  -- An outbox that was empty has no lease and no retry time.
  if redis.call('RPUSH', outbox, reply) > 1 then leased = lease()
  elseif isOver then leased, isIdle = grant(reply, 'state', 'idle'), true
  else leased = grant(reply) end
end
if leased == '' then leased = nil end
local function requeue() return respond('requeue', {deliver = leased, wakeGen = wake(redis.call('HGET', session, 'generation'))}) end
if turnsSetAside() ~= ',' then
  local free, back = firstFree(), setAsideTurnWithNews()
  if not free and not back then
    waitAtHead()
    return respond('idle', {deliver = leased, askerGen = 0})
  end
  if back then return requeue() end
  bringForward(free)
  first = free
end
if first == '' then
  if not isIdle then redis.call('HSET', session, 'state', 'idle') end
  redis.call('ZREM', dirty, sid)
  return respond('idle', {deliver = leased, askerGen = askerGen})
end
-- Only a claim knows whether this process may take a message that needs features.
if more ~= '1' or string.find(first, '^%d+:{"needs":') then return requeue() end
redis.call('HSET', state, 'headSeq', seqOf(first), 'failures', '', 'deaths', 0, 'deathsAlone', 0)
redis.call('ZADD', dirty, now(), sid)
return respond('next', {deliver = leased, head = first})
