-- Marks a call as started. The answer to a question is kept for as long as its runner may ask again, and published; a
-- question that was answered gets the same answer, or `closed` once its call was given back. A question that has waited
-- for too long gets none: a runner that lives has asked again meanwhile, and of a dead one nothing is to start. An answer
-- with an identity is gone when its call has ended, or is asked about anew, and at the latest with the call's deadline.
-- `look` lets a call that began before see what became of it; its runner is given the time of that beginning.
-- -> run | look | closed | started_before | taken | foreign
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
--   looks     '1': a `once` call that began before may look for what that run has made

-- include now
-- include audit
-- include open-call
-- include handed-in

-- `known`: as it is kept, a word (`look` with the time of the beginning), and behind a blank the identity.
local function reply(known)
  local word, beganAtMs, sealed = string.match(known, '^([%l_]+):?(%d*) ?(.*)$')
  if ask == '' then return word end
  local keptMs = tonumber(answerMs)
  if sealed ~= '' then
    local deadlineMs = redis.call('ZSCORE', deadlines, sid .. '|' .. callId)
    if deadlineMs then keptMs = math.max(1, math.min(keptMs, math.ceil(tonumber(deadlineMs) - now()))) end
  end
  redis.call('SET', answer, known, 'PX', keptMs)
  local more = sealed == '' and '' or ',"identity":"' .. sealed .. '"'
  if beganAtMs ~= '' then more = more .. ',"beganAtMs":' .. beganAtMs end
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
local isNoted = tonumber(repeatMs) > 0 or looks == '1'
local began = isNoted and redis.call('HGET', calls, 'began ' .. callId)
local mayRepeat = began and tonumber(repeatMs) > 0 and now() - tonumber(began) <= tonumber(repeatMs)
local allowed = 'run'
if call == 'started' and effect == 'once' and not mayRepeat then
  if not began or looks ~= '1' then return reply('started_before') end
  allowed = 'look:' .. began
end
if call == 'open' then
  redis.call('HSET', calls, callId, 'started ' .. facts)
  if isNoted then redis.call('HSET', calls, 'began ' .. callId, string.format('%.0f', now())) end
end
if allowed == 'run' then record('call_started', sid, callId, facts, {runner = runner}) end
if identity == '' then return reply(allowed) end
removeAnswer(callId, facts)
redis.call('HSET', calls, 'answer ' .. callId, answer)
return reply(allowed .. ' ' .. identity)
