-- Marks a call as started. The answer to a question is kept for as long as its runner may ask again, and published; a
-- question that was answered gets the same answer, or `closed` once its call was given back. A question that has waited
-- for too long gets none: a runner that lives has asked again meanwhile, and of a dead one nothing is to start. An answer
-- with an identity is gone when its call has ended, or is asked about anew, and at the latest with the call's deadline.
-- -> run | closed | started_before | taken | foreign
--
-- KEYS
--   calls
--   audit
--   deadlines
--   handoff
--   answer    string: the answer to this question
-- ARGV
--   sid
--   callId
--   effect    once, idempotent or pure
--   runner    that asks
--   handoffEntry
--   handoffClaims
--   ask       id of the question; '': the runner does not ask
--   begun     channel of the runner's answers
--   answerMs  how long the answer is kept
--   freshMs   how old a question may be
--   auditMax
--   identity  sealed, goes along with `run`; '': none
--   repeatMs  a `once` call that began no longer ago may begin again; 0: none

-- include now
-- include audit
-- include open-call
-- include handed-in

-- `known`: as it is kept, a word, and behind a blank the identity.
local function reply(known)
  if ask == '' then return known end
  local word, sealed = string.match(known, '^(%S+) ?(.*)$')
  local keptMs = tonumber(answerMs)
  if sealed ~= '' then
    local deadlineMs = redis.call('ZSCORE', deadlines, sid .. '|' .. callId)
    if deadlineMs then keptMs = math.max(1, math.min(keptMs, math.ceil(tonumber(deadlineMs) - now()))) end
  end
  redis.call('SET', answer, known, 'PX', keptMs)
  local more = sealed == '' and '' or ',"identity":"' .. sealed .. '"'
  redis.call('PUBLISH', begun, '{"ask":"' .. ask .. '","answer":"' .. word .. '"' .. more .. '}')
  return word
end
local call, facts = openCall(callId)
local refused = refusal(facts)
if refused == 'taken' then return refused end
if refused then
  reply('closed')
  return refused
end
-- Ids of entries are of the clock of Redis, which tests do not move.
local askedMs = ask ~= '' and string.match(handoffEntry, '^(%d+)%-')
if askedMs and exactNow() - clockOffsetMs - tonumber(askedMs) > tonumber(freshMs) then return 'taken' end
local answered = ask ~= '' and redis.call('GET', answer)
if answered then return reply(answered) end
if not call then return reply('closed') end
local began = tonumber(repeatMs) > 0 and redis.call('HGET', calls, 'began ' .. callId)
local mayRepeat = began and now() - tonumber(began) <= tonumber(repeatMs)
if call == 'started' and effect == 'once' and not mayRepeat then return reply('started_before') end
if call == 'open' then
  redis.call('HSET', calls, callId, 'started ' .. facts)
  if tonumber(repeatMs) > 0 then redis.call('HSET', calls, 'began ' .. callId, now()) end
end
record('call_started', sid, callId, facts, {runner = runner})
if identity == '' then return reply('run') end
removeAnswer(callId, facts)
redis.call('HSET', calls, 'answer ' .. callId, answer)
return reply('run ' .. identity)
