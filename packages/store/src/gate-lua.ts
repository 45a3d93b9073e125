/* oxlint-disable max-lines -- the scripts of one gate. */
// The gate. Each session has two hashes. Its hash `s` holds what ingress writes, too: state (st: idle | queued |
// running | suspended), the last generation handed out (gen), counters (seq, es), the number of the newest message that
// came while others were before it (behind; absent in sessions of older versions) and the outbox lease (olt, ole, ort).
// Its hash `state` only workers may write: the generation being run (rg), the fencing epoch (ep), the head message's
// number and crashes (hs, try), its owner (own), the checkpoint (turn), the numbers of messages that joined its turn
// (abs), what a process must know to go on with it (needs), its worker that ended without giving it back (lost), how often
// workers died with it beside other turns (deaths) and with it alone (deathsAlone; alone: it is run so), the run that
// was counted last (counted: <epoch>:<seq>:<as what>) and how many were excused (excused: <seq>:<n>), the session's settings (set), how many messages of its history are not here any more (hb), and the context:
// what stands for the compacted part (sm), where in the list that is here the rest begins (cs), and a version that
// changes whenever a claim is to read all of it again (hv). turn, sm and set are sealed by the worker: see state-seal.ts.

import { deathsTogether, maxExcuses } from "./session-store.ts";
import { approvals, approvalSize } from "./approval-lua.ts";
import {
  appendHistory,
  asides,
  audit,
  calls,
  choosing,
  emit,
  enqueue,
  gate,
  handedIn,
  needs,
  outbox,
  owned,
  recordId,
  requests,
  rising,
  setContext,
  time,
} from "./lua-fragments.ts";

/** -> {result, seq, wakeGen, eventSeq or '', ahead, head or ''} */
export const appendLua = `${time}${gate}${owned}${enqueue}
-- KEYS session inbox dirty seen floor who people state | ARGV sid message seenTtlMs maxWaiting person chatType
local known = redis.call('GET', KEYS[4])
if not known then
  return enqueue(KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[1], ARGV[2], ARGV[3], ARGV[4],
    {floor = KEYS[5], who = KEYS[6], people = KEYS[7], person = ARGV[5], chatType = ARGV[6]})
end
local v = redis.call('HMGET', KEYS[1], 'st', 'gen')
return {'duplicate', known, v[1] == 'queued' and v[2] or 0, '', 0, ''}`;

/** -> nil not parked | as append. What a full session cannot take stays parked. */
export const releaseLua = `${time}${gate}${owned}${enqueue}
-- KEYS session inbox dirty seen parked floor who people state | ARGV sid action seenTtlMs maxWaiting person chatType
local message = redis.call('GET', KEYS[5])
if not message then return false end
local released = {'accepted', 0, 0, '', 0, ''}
if ARGV[2] == 'append' then
  released = enqueue(KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[1], message, ARGV[3], ARGV[4],
    {floor = KEYS[6], who = KEYS[7], people = KEYS[8], person = ARGV[5], chatType = ARGV[6]})
end
if released[1] == 'accepted' then redis.call('DEL', KEYS[5]) end
return released`;

const delivery = `${time}${gate}${audit}${calls}${handedIn}
-- KEYS session control dirty calls deadlines audit handoff requests
-- ARGV sid callId entry result runner handoffEntry|'' handoffClaims auditMax
local call, facts = openCall(KEYS[4], ARGV[2])
local refused = refusal(KEYS[7], ARGV[6], facts, ARGV[7])
if refused then return {0, 0, refused} end`;

const answer = `
redis.call('ZREM', KEYS[5], ARGV[1] .. '|' .. ARGV[2])
local v = redis.call('HMGET', KEYS[1], 'st', 'gen')
local st = v[1] or 'idle'
if not call then return {0, st == 'queued' and v[2] or 0} end
redis.call('HSET', KEYS[4], ARGV[2], 'done')
redis.call('RPUSH', KEYS[2], ARGV[3])
audit(KEYS[6], 'call_ended', ARGV[1], ARGV[2], facts, {result = ARGV[4], runner = ARGV[5]})
if st == 'suspended' or st == 'idle' then return {1, wake(KEYS[1], KEYS[3], ARGV[1])} end
return {1, 0, false, st == 'running' and redis.call('LLEN', KEYS[2]) + redis.call('LLEN', KEYS[8]) or 0}`;

/**
 * -> {accepted, wakeGen, refusal of the hand-off's entry, entries that a running session has to read, this one included}.
 * The first answer to a call wins.
 */
export const deliverLua = `${delivery}${answer}`;

/** -> as deliver, and the call stays as it is where it has been started. */
export const deliverUnstartedLua = `${delivery}
if call == 'started' then return {0, 0} end${answer}`;

/** -> {accepted, wakeGen}. A cancelled waiting message leaves the inbox and its run is logged as done. */
export const cancelLua = `${time}${gate}${owned}${asides}${emit}
-- KEYS session inbox requests dirty events state | ARGV sid seq|'' entry channel doneBatch
local v = redis.call('HMGET', KEYS[1], 'st', 'gen')
local st = v[1] or 'idle'
if st == 'idle' then return {0, 0} end
local joined = redis.call('HGET', state, 'abs') or ''
-- Removes a message that no turn has begun. Its run ends with an event.
local function takeOut(entry)
  redis.call('LREM', KEYS[2], 1, entry)
  emit(KEYS[1], KEYS[5], ARGV[4], ARGV[1], ARGV[5], 1)
  return {1, 0}
end
local first = head(KEYS[2])
-- While turns are set aside, a claim may bring one of them to the head instead, which would read a cancel that is not its own.
if st == 'queued' and seqOf(first) == ARGV[2] and asideList() ~= ',' and not hasBegun(first) then return takeOut(first) end
if ARGV[2] == '' or seqOf(first) == ARGV[2] or string.find(joined, ',' .. ARGV[2] .. ',', 1, true) then
  redis.call('RPUSH', KEYS[3], ARGV[3])
  if st == 'suspended' then return {1, wake(KEYS[1], KEYS[4], ARGV[1])} end
  return {1, 0}
end
if asideOf(ARGV[2]) then
  redis.call('RPUSH', KEYS[3], ARGV[3])
  -- Where another turn runs or waits for calls, it is heard after that.
  if st == 'suspended' and redis.call('HGET', state, 'waits') then return {1, wake(KEYS[1], KEYS[4], ARGV[1])} end
  return {1, 0}
end
for _, entry in ipairs(redis.call('LRANGE', KEYS[2], 1, -1)) do
  if seqOf(entry) == ARGV[2] then return takeOut(entry) end
end
return {0, 0}`;

/**
 * -> nil | {'needs', feature...} | {'lost', owner}: call again with what became of that worker | {'alone'} refused
 * | {'claimed', epoch, turn, head, tries, deaths, deathsAlone, contextVersion, from, context from there on, control,
 *    settings, summary, whether turns are set aside, whether the head may have waited}
 */
export const claimLua = `${time}${gate}${owned}${requests}${choosing}${rising}${needs}
-- KEYS session inbox control history dirty floor requests state
-- ARGV sid gen owner knownVersion knownLength knownLastSha1 judgedOwner|'*'|'' judgedDead alone features
local s = redis.call('HMGET', KEYS[1], 'st', 'behind')
local st, behind = s[1] or 'idle', s[2]
if st == 'idle' then return false end
if st ~= 'queued' and redis.call('HGET', state, 'rg') ~= ARGV[2] then return false end
-- First, since it needs memory: a full Redis refuses the claim, and not only what is written after a model was asked.
redis.call('ZADD', KEYS[5], now(), ARGV[1])
takeRequests(KEYS[7], KEYS[3])
if st == 'queued' and not choose(KEYS[1], KEYS[2], KEYS[3], KEYS[5], ARGV[1]) then return false end
local v = redis.call('HMGET', state, 'ep', 'rg', 'turn', 'hs', 'try', 'hv', 'cs', 'sm', 'set')
-- Its first claim: what is counted in its history begins above what removed sessions of its cell had.
local base = not v[1] and redis.call('HGET', KEYS[6], 'hb')
if base then
  v[6] = above(nil)
  redis.call('HSET', state, 'hb', base, 'hv', v[6])
end
local first = head(KEYS[2])
local seq = seqOf(first) or '0'
local control = redis.call('LRANGE', KEYS[3], 0, -1)
local lacking = lackingOf(ARGV[10], redis.call('HGET', state, 'needs'), first, control)
if #lacking > 0 then return {'needs', unpack(lacking)} end
local tries, deaths, deathsAlone = 0, 0, 0
if v[4] == seq then
  local w = redis.call('HMGET', state, 'own', 'lost', 'deaths', 'deathsAlone', 'alone')
  tries, deaths, deathsAlone = tonumber(v[5] or 0), tonumber(w[3] or 0), tonumber(w[4] or 0)
  local lost = st == 'running' and w[1] or st == 'queued' and w[2]
  if lost then
    local isKnown = ARGV[7] == lost or ARGV[7] == '*' or lost == ARGV[3]
    if not isKnown then return {'lost', lost} end
    local countedAs = 'try'
    if lost ~= ARGV[3] and ARGV[8] == '1' then countedAs = w[5] == '1' and 'deathsAlone' or 'deaths' end
    tries = tries + 1
    if countedAs == 'deathsAlone' then deathsAlone = deathsAlone + 1 end
    if countedAs == 'deaths' then deaths = deaths + 1 end
    redis.call('HSET', state, 'counted', (v[1] or '') .. ':' .. seq .. ':' .. countedAs)
  end
end
redis.call('HDEL', state, 'lost', 'waits')
redis.call('HSET', state, 'hs', seq, 'try', tries, 'deaths', deaths, 'deathsAlone', deathsAlone)
if deaths >= ${deathsTogether} and ARGV[9] ~= '1' then
  redis.call('HSET', KEYS[1], 'st', 'queued')
  return {'alone'}
end
local ep = above(v[1])
redis.call('HSET', KEYS[1], 'st', 'running')
redis.call('HSET', state, 'rg', ARGV[2], 'own', ARGV[3], 'ep', ep, 'alone', ARGV[9])
-- The context counts as one list: the summary, if there is one, then history from cs on.
local version, start, summary = v[6] or '0', tonumber(v[7] or 0), v[8]
local from = version == ARGV[4] and tonumber(ARGV[5]) or 0
local skipped = (summary and from > 0) and from - 1 or from
-- A failover may have lost the end of what the caller knows, and others may have written since.
if skipped > 0 then
  local last = redis.call('LINDEX', KEYS[4], start + skipped - 1)
  if not last or redis.sha1hex(last) ~= ARGV[6] then from, skipped = 0, 0 end
end
local tail = redis.call('LRANGE', KEYS[4], start + skipped, -1)
return {'claimed', ep, v[3] or '', first, tries, deaths, deathsAlone, version, from, tail, control, v[9] or '',
  from == 0 and summary or '', asideList() ~= ',' and 1 or 0,
  (not behind or tonumber(seq) <= tonumber(behind)) and 1 or 0}`;

/** -> 1 | 0 fenced */
export const handOffLua = `${time}${owned}
-- KEYS session dirty state | ARGV epoch sid
if fenced(ARGV[1]) then return 0 end
redis.call('HSET', KEYS[1], 'st', 'queued')
redis.call('ZADD', KEYS[2], now(), ARGV[2])
return 1`;

/** -> {excused, generation that is to be woken or 0}. A full Redis refuses it before anything has changed. */
export const excuseLua = `${time}${gate}${owned}
-- KEYS session dirty state | ARGV sid epoch
local v = redis.call('HMGET', state, 'ep', 'hs', 'counted', 'excused', 'lost')
local w = redis.call('HMGET', KEYS[1], 'st', 'gen')
local st, seq = w[1] or 'idle', v[2] or '0'
local excusedSeq, times = string.match(v[4] or '', '^(%d+):(%d+)$')
times = excusedSeq == seq and tonumber(times) or 0
local isHeld = v[1] == ARGV[2]
local counted, countedAs = string.match(v[3] or '', '^(%d+:%d+):(%a+)$')
local isCounted = counted == ARGV[2] .. ':' .. seq
local isLost = isHeld and (st == 'running' or (st == 'queued' and v[5]))
if isCounted or isLost then
  if times >= ${maxExcuses} then return {0, 0} end
  redis.call('HSET', state, 'excused', seq .. ':' .. (times + 1))
end
if isCounted then
  redis.call('HDEL', state, 'counted')
  redis.call('HINCRBY', state, 'try', -1)
  if countedAs ~= 'try' then redis.call('HINCRBY', state, countedAs, -1) end
end
if isLost then
  redis.call('HSET', KEYS[1], 'st', 'queued')
  redis.call('HDEL', state, 'lost')
  redis.call('ZADD', KEYS[2], now(), ARGV[1])
end
return {1, isHeld and (isLost or st == 'queued') and w[2] or 0}`;

/** -> -1 fenced | 0 suspended or handed off | generation to wake as text: suspended, others may go on | unread control entries */
export const saveLua = `${time}${gate}${owned}${requests}${choosing}${emit}${appendHistory}${setContext}${audit}
-- KEYS session control calls deadlines dirty history events inbox audit approvals(6) requests state
-- ARGV epoch sid turn consumed then|'suspend <wakeAtMs>' channel batch nEvents keep|'' summary|'' nHistory nOpen nApprovals maxKept
--      needs|'' waits|'' message... (callId deadlineMs facts)... (approval)... absorbed... auditMax
if fenced(ARGV[1]) then return -1 end
local nHistory, nOpen, nApprovals = tonumber(ARGV[11]), tonumber(ARGV[12]), tonumber(ARGV[13])
local opened = 17 + nHistory
local asked = opened + 3 * nOpen
local absorbed, isAbsorbed = asked + ${approvalSize} * nApprovals, {}
redis.call('HSET', state, 'turn', ARGV[3])
if ARGV[15] == '' then redis.call('HDEL', state, 'needs') else redis.call('HSET', state, 'needs', ARGV[15]) end
if ARGV[4] ~= '0' then redis.call('LTRIM', KEYS[2], ARGV[4], -1) end
appendHistory(KEYS[6], 17, nHistory)
setContext(KEYS[6], ARGV[9], ARGV[10])
emit(KEYS[1], KEYS[7], ARGV[6], ARGV[2], ARGV[7], tonumber(ARGV[8]))
for i = absorbed, #ARGV - 1 do isAbsorbed[ARGV[i]] = true end
if next(isAbsorbed) then
  local joined = redis.call('HGET', state, 'abs') or ','
  for _, entry in ipairs(redis.call('LRANGE', KEYS[8], 1, -1)) do
    if isAbsorbed[seqOf(entry)] then
      redis.call('LREM', KEYS[8], 1, entry)
      joined = joined .. seqOf(entry) .. ','
    end
  end
  redis.call('HSET', state, 'abs', joined)
end
for i = opened, asked - 1, 3 do
  if redis.call('HSETNX', KEYS[3], ARGV[i], 'open ' .. ARGV[i + 2]) == 1 then
    redis.call('ZADD', KEYS[4], ARGV[i + 1], ARGV[2] .. '|' .. ARGV[i])
    audit(KEYS[9], 'call_opened', ARGV[2], ARGV[i], ARGV[i + 2], {})
  end
end
if nApprovals > 0 then ${approvals}
  for i = asked, absorbed - 1, ${approvalSize} do ask(approvalKeys(9), ARGV[2], i, tonumber(ARGV[14])) end
end
if ARGV[5] == 'handoff' then
  redis.call('HSET', KEYS[1], 'st', 'queued')
  redis.call('ZADD', KEYS[5], now(), ARGV[2])
  return 0
end
takeRequests(KEYS[#KEYS - 1], KEYS[2])
local unread = redis.call('LRANGE', KEYS[2], 0, -1)
if string.sub(ARGV[5], 1, 7) == 'suspend' and #unread == 0 then
  if ARGV[16] ~= '' then
    redis.call('HSET', state, 'waits', ARGV[16])
    if asideWithNews() or firstFree(KEYS[8], ARGV[16]) then return string.format('%.0f', wake(KEYS[1], KEYS[5], ARGV[2])) end
  end
  redis.call('HSET', KEYS[1], 'st', 'suspended')
  local wakeAt = string.match(ARGV[5], '%d+$')
  if wakeAt then redis.call('ZADD', KEYS[4], wakeAt, ARGV[2] .. '|') end
  redis.call('ZREM', KEYS[5], ARGV[2])
  return 0
end
redis.call('ZADD', KEYS[5], now(), ARGV[2])
return unread`;

/** -> {woken, wakeGen}. The time at which a suspended session asked to be woken has come. */
export const wakeDueLua = `${time}${gate}
-- KEYS session dirty deadlines | ARGV sid
redis.call('ZREM', KEYS[3], ARGV[1] .. '|')
if redis.call('HGET', KEYS[1], 'st') ~= 'suspended' then return {0, 0} end
return {1, wake(KEYS[1], KEYS[2], ARGV[1])}`;

/** -> {-1} fenced | {0, lease} idle | {1, lease, head} next | {2, lease, gen} requeue */
export const commitLua = `${time}${gate}${owned}${requests}${choosing}${emit}${appendHistory}${setContext}${outbox}${audit}
-- KEYS session inbox control calls deadlines dirty history events outbox due audit approvals(6) ended untended requests
--      state
-- ARGV epoch sid seq more channel batch nEvents outboxRecord leaseToken leaseMs keep|'' summary|'' settings|''
--      message... auditMax
if fenced(ARGV[1]) then return {-1} end
-- A turn that was committed before is not committed again, even under the same epoch.
if (seqOf(head(KEYS[2])) or '0') ~= ARGV[3] then return {-1} end
redis.call('LPOP', KEYS[2])
appendHistory(KEYS[7], 14, #ARGV - 14)
setContext(KEYS[7], ARGV[11], ARGV[12])
if ARGV[13] ~= '' then redis.call('HSET', state, 'set', ARGV[13]) end
emit(KEYS[1], KEYS[8], ARGV[5], ARGV[2], ARGV[6], tonumber(ARGV[7]))
redis.call('ZREM', KEYS[5], ARGV[2] .. '|')
local calls = redis.call('HGETALL', KEYS[4])
for i = 1, #calls, 2 do
  if calls[i + 1] ~= 'done' then
    redis.call('ZREM', KEYS[5], ARGV[2] .. '|' .. calls[i])
    local state, facts = string.match(calls[i + 1], '^(%a+) ?(.*)$')
    audit(KEYS[11], 'call_ended', ARGV[2], calls[i], facts, {result = state == 'started' and 'unknown' or 'cancelled'})
  end
end
local pending = redis.call('ZRANGE', KEYS[13], 0, -1)
if #pending > 0 then ${approvals}
  cancel(approvalKeys(11), ARGV[2], pending, ARGV[2] .. '-' .. ARGV[3])
end
redis.call('HDEL', state, 'turn', 'abs', 'needs')
takeRequests(KEYS[#KEYS - 1], KEYS[3])
redis.call('DEL', KEYS[3], KEYS[4])
redis.call('ZADD', KEYS[18], now(), ARGV[2])
redis.call('ZADD', KEYS[19], now(), ARGV[2])
local record = ''
if ARGV[8] ~= '' then
  redis.call('RPUSH', KEYS[9], ARGV[8])
  record = lease(KEYS[1], KEYS[9], KEYS[10], ARGV[2], ARGV[9], tonumber(ARGV[10]))
end
local first = head(KEYS[2])
if asideList() ~= ',' then
  local free, back = firstFree(KEYS[2]), asideWithNews()
  if not free and not back then
    waitAtHead(KEYS[1], KEYS[2], KEYS[3], KEYS[6], ARGV[2])
    return {0, record}
  end
  if back then return {2, record, wake(KEYS[1], KEYS[6], ARGV[2])} end
  bringForward(KEYS[2], free)
  first = free
end
if first == '' then
  redis.call('HSET', KEYS[1], 'st', 'idle')
  redis.call('ZREM', KEYS[6], ARGV[2])
  return {0, record}
end
if ARGV[4] ~= '1' then return {2, record, wake(KEYS[1], KEYS[6], ARGV[2])} end
redis.call('HSET', state, 'hs', seqOf(first), 'try', 0, 'deaths', 0, 'deathsAlone', 0)
redis.call('ZADD', KEYS[6], now(), ARGV[2])
return {1, record, first}`;

/** -> 1 | 0 fenced */
export const emitLua = `${owned}${emit}
-- KEYS session events state | ARGV epoch sid channel batch nEvents
if fenced(ARGV[1]) then return 0 end
emit(KEYS[1], KEYS[2], ARGV[3], ARGV[2], ARGV[4], tonumber(ARGV[5]))
return 1`;

/** -> 1 | 0 answered or not known */
export const reportLua = `${emit}${calls}${handedIn}
-- KEYS session calls events handoff | ARGV sid callId channel batch handoffEntry|'' handoffClaims
local call, facts = openCall(KEYS[2], ARGV[2])
if refusal(KEYS[4], ARGV[5], facts, ARGV[6]) or not call then return 0 end
emit(KEYS[1], KEYS[3], ARGV[3], ARGV[1], ARGV[4], 1)
return 1`;

/**
 * -> run | closed | started_before | taken | foreign. The answer to a question is kept for as long as its runner may
 * ask again (answerMs), and published; a question that was answered gets the same answer, or `closed` once its call was
 * given back. A question that has waited for longer than freshMs gets none: who lives has asked again meanwhile, and of
 * the dead nothing is to start.
 */
export const beginLua = `${audit}${calls}${handedIn}
-- KEYS calls audit handoff answer
-- ARGV sid callId effect runner handoffEntry|'' handoffClaims ask|'' channel answerMs freshMs auditMax
local function answer(word)
  if ARGV[7] == '' then return word end
  redis.call('SET', KEYS[4], word, 'PX', ARGV[9])
  redis.call('PUBLISH', ARGV[8], '{"ask":"' .. ARGV[7] .. '","answer":"' .. word .. '"}')
  return word
end
local call, facts = openCall(KEYS[1], ARGV[2])
local refused = refusal(KEYS[3], ARGV[5], facts, ARGV[6])
if refused == 'taken' then return refused end
if refused then answer('closed'); return refused end
local askedMs = ARGV[7] ~= '' and string.match(ARGV[5], '^(%d+)%-')
if askedMs and redis.call('TIME')[1] * 1000 - tonumber(askedMs) > tonumber(ARGV[10]) then return 'taken' end
local answered = ARGV[7] ~= '' and redis.call('GET', KEYS[4])
if answered then return answer(answered) end
if not call then return answer('closed') end
if call == 'started' and ARGV[3] == 'once' then return answer('started_before') end
if call == 'open' then redis.call('HSET', KEYS[1], ARGV[2], 'started ' .. facts) end
audit(KEYS[2], 'call_started', ARGV[1], ARGV[2], facts, {runner = ARGV[4]})
return answer('run')`;

/** -> 1 open again | 0. Works once for a question, and only while its answer is kept. */
export const giveBackLua = `${calls}${handedIn}
-- KEYS calls handoff answer | ARGV callId handoffEntry handoffClaims answerMs
local call, facts = openCall(KEYS[1], ARGV[1])
if refusal(KEYS[2], ARGV[2], facts, ARGV[3]) then return 0 end
if call ~= 'started' or redis.call('GET', KEYS[3]) ~= 'run' then return 0 end
redis.call('SET', KEYS[3], 'closed', 'PX', ARGV[4])
redis.call('HSET', KEYS[1], ARGV[1], 'open ' .. facts)
return 1`;

/** -> generation to add a job for, or 0. Who lost a running session is judged by the claim that takes it up. */
export const healLua = `${time}${gate}${owned}
-- KEYS session inbox control dirty requests state | ARGV sid deadGen
local v = redis.call('HMGET', KEYS[1], 'st', 'gen')
local st = v[1] or 'idle'
if st == 'queued' then redis.call('ZADD', KEYS[4], now(), ARGV[1]); return tonumber(v[2]) end
if st == 'running' then
  local v = redis.call('HMGET', state, 'rg', 'own')
  if v[1] ~= ARGV[2] then return 0 end
  redis.call('HSET', state, 'lost', v[2] or '')
  return wake(KEYS[1], KEYS[4], ARGV[1])
end
if redis.call('LLEN', KEYS[3]) + redis.call('LLEN', KEYS[5]) > 0 or (st == 'idle' and redis.call('LLEN', KEYS[2]) > 0) then
  return wake(KEYS[1], KEYS[4], ARGV[1])
end
redis.call('ZREM', KEYS[4], ARGV[1])
return 0`;

/** -> {state, gen, waiting, messages, unsent, head or '', turn or '', settings or '', messages of the context, epoch, {entry, turn} of each turn set aside} */
export const summaryLua = `${gate}${owned}${asides}
-- KEYS session inbox history outbox state
local s, v = redis.call('HMGET', KEYS[1], 'st', 'gen', 'es'), redis.call('HMGET', state, 'turn', 'set', 'cs', 'ep')
local waiting, messages = redis.call('LLEN', KEYS[2]), redis.call('LLEN', KEYS[3])
local unsent, setAside = redis.call('LLEN', KEYS[4]), {}
for seq in string.gmatch(asideList(), '%d+') do
  local a = redis.call('HMGET', state, 'aside:' .. seq, 'aside:' .. seq .. ':turn')
  table.insert(setAside, {a[1] or '', a[2] or ''})
end
return {s[1] or 'idle', s[2] or 0, waiting, messages, unsent, head(KEYS[2]), v[1] or '', v[2] or '',
  messages - tonumber(v[3] or 0), v[4] or '0', tonumber(s[3] or 0), setAside}`;

/** -> record or ''. */
export const pushOutboxLua = `${time}${outbox}
-- KEYS session outbox due seen parked | ARGV sid record seenTtlMs leaseToken leaseMs parked|''
if not redis.call('SET', KEYS[4], '0', 'NX', 'PX', ARGV[3]) then return '' end
if ARGV[6] ~= '' then redis.call('SET', KEYS[5], ARGV[6], 'PX', ARGV[3]) end
redis.call('RPUSH', KEYS[2], ARGV[2])
redis.call('ZADD', KEYS[3], 'NX', now(), ARGV[1])
return lease(KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[4], tonumber(ARGV[5]))`;

/** -> record or ''. */
export const leaseOutboxLua = `${time}${outbox}
-- KEYS session outbox due | ARGV sid leaseToken leaseMs
if redis.call('LLEN', KEYS[2]) == 0 then redis.call('ZREM', KEYS[3], ARGV[1]); return '' end
return lease(KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[2], tonumber(ARGV[3]))`;

/** -> next record or ''. A token that is not the current one changes nothing. */
export const ackOutboxLua = `${time}${outbox}${recordId}
-- KEYS session outbox due cards openCards | ARGV sid leaseToken leaseMs
if redis.call('HGET', KEYS[1], 'olt') ~= ARGV[2] then return '' end
local sent = redis.call('LPOP', KEYS[2])
if sent and redis.call('EXISTS', KEYS[4]) == 1 then
  local reply = recordId(sent)
  redis.call('HDEL', KEYS[4], reply)
  redis.call('ZREM', KEYS[5], ARGV[1] .. '|' .. reply)
end
redis.call('HDEL', KEYS[1], 'olt', 'ole', 'ort')
if redis.call('LLEN', KEYS[2]) == 0 then redis.call('ZREM', KEYS[3], ARGV[1]); return '' end
return lease(KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[2], tonumber(ARGV[3]))`;

export const retryOutboxLua = `
-- KEYS session outbox due | ARGV sid leaseToken record retryAtMs
if redis.call('HGET', KEYS[1], 'olt') ~= ARGV[2] then return 0 end
redis.call('LSET', KEYS[2], 0, ARGV[3])
redis.call('HDEL', KEYS[1], 'olt', 'ole')
redis.call('HSET', KEYS[1], 'ort', ARGV[4])
redis.call('ZADD', KEYS[3], ARGV[4], ARGV[1])
return 1`;

/**
 * -> 1 | 0 fenced. An epoch may write its own turn's cards until the commit: later they belong to
 * whoever sends the outbox, and what was sent is not written down again.
 */
export const saveCardsLua = `${time}${gate}${owned}${recordId}
-- KEYS session inbox outbox cards openCards state | ARGV sid replyId reply fence epoch|outboxToken
if ARGV[4] == 'epoch' then
  if fenced(ARGV[5]) then return 0 end
  if ARGV[1] .. '-' .. (seqOf(head(KEYS[2])) or '') ~= ARGV[2] then return 0 end
else
  if redis.call('HGET', KEYS[1], 'olt') ~= ARGV[5] then return 0 end
  local record = redis.call('LINDEX', KEYS[3], 0)
  if not record or recordId(record) ~= ARGV[2] then return 0 end
end
redis.call('HSET', KEYS[4], ARGV[2], ARGV[3])
redis.call('ZADD', KEYS[5], now(), ARGV[1] .. '|' .. ARGV[2])
return 1`;
