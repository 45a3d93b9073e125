-- Forgets the context of a session and ends its turns. A turn has begun when its session runs or waits, or is queued with
-- a checkpoint or after a crash; a message that was only queued is not touched. `changed`: another message is at the head
-- by now, or its turn has got its first card.
--
-- KEYS session inbox control calls deadlines dirty history events outbox due ended untended requests cards state
-- KEYS audit approvals pending kept expiries approvalCards said
-- ARGV
--   sid
--   headSeq   number of the turn at the head, or 0
--   channel
--   batch     the event that ends its run
--   reply     to its message, JSON, or ''
--   facts     for the audit log, JSON
--   person    whose deed it is
--   hasCards  '1': the turn at the head has cards
--   waiting   turns that are set aside, as a JSON list of {seq, batch, reply, hasCards}
--   asker     of a child session, which gets its end, JSON, or ''
--   auditMax
-- REPLY changed
-- REPLY reset
--   hasEnded  flag     a turn
--   wakeGen   integer  generation to wake the session for, or 0
--   askerGen  integer  the same of the asker's session

-- include wake
-- include switch-turns
-- include emit
-- include context
-- include audit
-- include approvals
-- include end-calls

local s = redis.call('HMGET', session, 'state', 'generation')
local first = head()
local seq = seqOf(first) or '0'
local function hasCardsNow(number) return redis.call('HGET', cards, sid .. '-' .. number) and '1' or '0' end
if seq ~= headSeq or hasCardsNow(seq) ~= hasCards then return respond('changed') end
local others, numbers = cjson.decode(waiting), ','
for _, other in ipairs(others) do
  numbers = numbers .. other.seq .. ','
  if hasCardsNow(other.seq) ~= other.hasCards then return respond('changed') end
end
if turnsSetAside() ~= numbers then return respond('changed') end
local function tell(event, answer)
  emit(event, 1)
  if answer == '' then return end
  redis.call('RPUSH', outbox, answer)
  redis.call('ZADD', due, 'NX', now(), sid)
end
local st = s[1] or 'idle'
local epoch = redis.call('HGET', state, 'epoch')
local begun = first ~= '' and st ~= 'idle' and (st ~= 'queued' or hasBegun(first)) and true or false
endCalls()
cancelApprovals(redis.call('ZRANGE', pending, 0, -1))
if seq ~= '0' then redis.call('HDEL', children, 'steps ' .. sid .. '-' .. seq) end
redis.call('HSET', state, 'epoch', above(epoch))
redis.call('HDEL', state, 'turn', 'absorbed', 'needs', 'headSeq', 'failures', 'lost', 'deaths', 'deathsAlone', 'settings')
redis.call('DEL', control, calls, requests)
setContext('0', '')
for _, other in ipairs(others) do
  bringBack(other.seq)
  redis.call('LPOP', inbox)
  tell(other.batch, other.reply)
end
redis.call('DEL', control)
redis.call('HDEL', state, 'waits', 'headSeq', unpack(turnFields))
local askerGen = 0
if begun then
  redis.call('LPOP', inbox)
  if asker ~= '' then askerGen = answerAsker(cjson.decode(asker))
  else
    redis.call('ZADD', ended, now(), sid)
    redis.call('ZADD', untended, now(), sid)
  end
  tell(batch, reply)
end
keepEvents()
record('session_reset', sid, '', facts, {person = person})
if head() ~= '' then return respond('reset', {hasEnded = begun, wakeGen = wake(s[2]), askerGen = askerGen}) end
redis.call('HSET', session, 'state', 'idle')
redis.call('ZREM', dirty, sid)
return respond('reset', {hasEnded = begun, wakeGen = 0, askerGen = askerGen})
