// The gate: one hash per session holds its state (st: idle | queued | running | suspended), the
// last generation handed out (gen), the generation being run (rg), the fencing epoch (ep), counters
// (seq, es), the head message's number and crashes (hs, try), its owner (own), the checkpoint
// (turn), the numbers of messages that joined its turn (abs), the session's settings (set), the
// outbox lease (olt, ole, ort), how many messages of its history are not here any more (hb), and the
// context: what stands for the compacted part (sm), where in the list that is here the rest begins (cs),
// and a version that changes whenever a claim is to read all of it again (hv).

import { approvals, approvalSize } from "./approval-lua.ts";
import {
  appendHistory,
  audit,
  calls,
  emit,
  enqueue,
  gate,
  outbox,
  recordId,
  rising,
  setContext,
  time,
} from "./lua-fragments.ts";

/** -> {result, seq, wakeGen, eventSeq or '', ahead, head or ''} */
export const appendLua = `${time}${gate}${enqueue}
-- KEYS session inbox dirty seen floor who people | ARGV sid message seenTtlMs maxWaiting person chatType
local known = redis.call('GET', KEYS[4])
if not known then
  return enqueue(KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[1], ARGV[2], ARGV[3], ARGV[4],
    {floor = KEYS[5], who = KEYS[6], people = KEYS[7], person = ARGV[5], chatType = ARGV[6]})
end
local v = redis.call('HMGET', KEYS[1], 'st', 'gen')
return {'duplicate', known, v[1] == 'queued' and v[2] or 0, '', 0, ''}`;

/** -> nil not parked | as append. What a full session cannot take stays parked. */
export const releaseLua = `${time}${gate}${enqueue}
-- KEYS session inbox dirty seen parked floor who people | ARGV sid action seenTtlMs maxWaiting person chatType
local message = redis.call('GET', KEYS[5])
if not message then return false end
local released = {'accepted', 0, 0, '', 0, ''}
if ARGV[2] == 'append' then
  released = enqueue(KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[1], message, ARGV[3], ARGV[4],
    {floor = KEYS[6], who = KEYS[7], people = KEYS[8], person = ARGV[5], chatType = ARGV[6]})
end
if released[1] == 'accepted' then redis.call('DEL', KEYS[5]) end
return released`;

const delivery = `${time}${gate}${audit}${calls}
-- KEYS session control dirty calls deadlines audit | ARGV sid callId entry result runner auditMax`;

const answer = `
redis.call('ZREM', KEYS[5], ARGV[1] .. '|' .. ARGV[2])
local v = redis.call('HMGET', KEYS[1], 'st', 'gen')
local st = v[1] or 'idle'
local call, facts = openCall(KEYS[4], ARGV[2])
if not call then return {0, st == 'queued' and v[2] or 0} end
redis.call('HSET', KEYS[4], ARGV[2], 'done')
redis.call('RPUSH', KEYS[2], ARGV[3])
audit(KEYS[6], 'call_ended', ARGV[1], ARGV[2], facts, {result = ARGV[4], runner = ARGV[5]})
if st == 'suspended' or st == 'idle' then return {1, wake(KEYS[1], KEYS[3], ARGV[1])} end
return {1, 0}`;

/** -> {accepted, wakeGen}. The first answer to a call wins. */
export const deliverLua = `${delivery}${answer}`;

/** -> as deliver, and the call stays as it is where it has been started. */
export const deliverUnstartedLua = `${delivery}
if openCall(KEYS[4], ARGV[2]) == 'started' then return {0, 0} end${answer}`;

/** -> {accepted, wakeGen}. A cancelled waiting message leaves the inbox and its run is logged as done. */
export const cancelLua = `${time}${gate}${emit}
-- KEYS session inbox control dirty events | ARGV sid seq|'' entry channel doneBatch
local v = redis.call('HMGET', KEYS[1], 'st', 'gen')
local st = v[1] or 'idle'
if st == 'idle' then return {0, 0} end
local joined = redis.call('HGET', KEYS[1], 'abs') or ''
if ARGV[2] == '' or seqOf(head(KEYS[2])) == ARGV[2] or string.find(joined, ',' .. ARGV[2] .. ',', 1, true) then
  redis.call('RPUSH', KEYS[3], ARGV[3])
  if st == 'suspended' then return {1, wake(KEYS[1], KEYS[4], ARGV[1])} end
  return {1, 0}
end
for _, entry in ipairs(redis.call('LRANGE', KEYS[2], 1, -1)) do
  if seqOf(entry) == ARGV[2] then
    redis.call('LREM', KEYS[2], 1, entry)
    emit(KEYS[1], KEYS[5], ARGV[4], ARGV[1], ARGV[5], 1)
    return {1, 0}
  end
end
return {0, 0}`;

/** -> nil | {epoch, turn, head, tries, contextVersion, from, context from there on, control, settings} */
export const claimLua = `${time}${gate}${rising}
-- KEYS session inbox control history dirty | ARGV sid gen owner knownVersion knownLength knownLastSha1
local v = redis.call('HMGET', KEYS[1], 'st', 'rg', 'turn', 'hs', 'try', 'hv', 'ep', 'cs', 'sm', 'set')
local st = v[1] or 'idle'
if st == 'idle' then return false end
if st ~= 'queued' and v[2] ~= ARGV[2] then return false end
local first = head(KEYS[2])
local seq = seqOf(first) or '0'
local tries = tonumber(v[5] or 0)
if v[4] ~= seq then tries = 0 elseif st == 'running' then tries = tries + 1 end
local ep = above(v[7])
redis.call('HSET', KEYS[1], 'st', 'running', 'rg', ARGV[2], 'own', ARGV[3], 'hs', seq, 'try', tries, 'ep', ep)
redis.call('ZADD', KEYS[5], now(), ARGV[1])
-- The context counts as one list: the summary, if there is one, then history from cs on.
local version, start, summary = v[6] or '0', tonumber(v[8] or 0), v[9]
local from = version == ARGV[4] and tonumber(ARGV[5]) or 0
local skipped = (summary and from > 0) and from - 1 or from
-- A failover may have lost the end of what the caller knows, and others may have written since.
if skipped > 0 then
  local last = redis.call('LINDEX', KEYS[4], start + skipped - 1)
  if not last or redis.sha1hex(last) ~= ARGV[6] then from, skipped = 0, 0 end
end
local tail = redis.call('LRANGE', KEYS[4], start + skipped, -1)
if summary and from == 0 then table.insert(tail, 1, summary) end
return {ep, v[3] or '', first, tries, version, from, tail, redis.call('LRANGE', KEYS[3], 0, -1), v[10] or ''}`;

/** -> -1 fenced | 0 suspended or handed off | unread control entries */
export const saveLua = `${time}${gate}${emit}${appendHistory}${setContext}${audit}
-- KEYS session control calls deadlines dirty history events inbox audit approvals...
-- ARGV epoch sid turn consumed then channel batch nEvents keep|'' summary|'' nHistory nOpen nApprovals maxKept
--      message... (callId deadlineMs facts)... (approval)... absorbed... auditMax
if fenced(KEYS[1], ARGV[1]) then return -1 end
local nHistory, nOpen, nApprovals = tonumber(ARGV[11]), tonumber(ARGV[12]), tonumber(ARGV[13])
local opened = 15 + nHistory
local asked = opened + 3 * nOpen
local absorbed, isAbsorbed = asked + ${approvalSize} * nApprovals, {}
redis.call('HSET', KEYS[1], 'turn', ARGV[3])
if ARGV[4] ~= '0' then redis.call('LTRIM', KEYS[2], ARGV[4], -1) end
appendHistory(KEYS[6], 15, nHistory)
setContext(KEYS[1], KEYS[6], ARGV[9], ARGV[10])
emit(KEYS[1], KEYS[7], ARGV[6], ARGV[2], ARGV[7], tonumber(ARGV[8]))
for i = absorbed, #ARGV - 1 do isAbsorbed[ARGV[i]] = true end
if next(isAbsorbed) then
  local joined = redis.call('HGET', KEYS[1], 'abs') or ','
  for _, entry in ipairs(redis.call('LRANGE', KEYS[8], 1, -1)) do
    if isAbsorbed[seqOf(entry)] then
      redis.call('LREM', KEYS[8], 1, entry)
      joined = joined .. seqOf(entry) .. ','
    end
  end
  redis.call('HSET', KEYS[1], 'abs', joined)
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
local unread = redis.call('LRANGE', KEYS[2], 0, -1)
if ARGV[5] == 'suspend' and #unread == 0 then
  redis.call('HSET', KEYS[1], 'st', 'suspended')
  redis.call('ZREM', KEYS[5], ARGV[2])
  return 0
end
redis.call('ZADD', KEYS[5], now(), ARGV[2])
return unread`;

/** -> {-1} fenced | {0, lease} idle | {1, lease, head} next | {2, lease, gen} requeue */
export const commitLua = `${time}${gate}${emit}${appendHistory}${setContext}${outbox}${audit}
-- KEYS session inbox control calls deadlines dirty history events outbox due audit approvals(6) ended untended
-- ARGV epoch sid seq more channel batch nEvents outboxRecord leaseToken leaseMs keep|'' summary|'' settings|''
--      message... auditMax
if fenced(KEYS[1], ARGV[1]) then return {-1} end
-- A turn that was committed before is not committed again, even under the same epoch.
if (seqOf(head(KEYS[2])) or '0') ~= ARGV[3] then return {-1} end
redis.call('LPOP', KEYS[2])
appendHistory(KEYS[7], 14, #ARGV - 14)
setContext(KEYS[1], KEYS[7], ARGV[11], ARGV[12])
if ARGV[13] ~= '' then redis.call('HSET', KEYS[1], 'set', ARGV[13]) end
emit(KEYS[1], KEYS[8], ARGV[5], ARGV[2], ARGV[6], tonumber(ARGV[7]))
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
  cancel(approvalKeys(11), ARGV[2], pending)
end
redis.call('HDEL', KEYS[1], 'turn', 'abs')
redis.call('DEL', KEYS[3], KEYS[4])
redis.call('ZADD', KEYS[17], now(), ARGV[2])
redis.call('ZADD', KEYS[18], now(), ARGV[2])
local record = ''
if ARGV[8] ~= '' then
  redis.call('RPUSH', KEYS[9], ARGV[8])
  record = lease(KEYS[1], KEYS[9], KEYS[10], ARGV[2], ARGV[9], tonumber(ARGV[10]))
end
local first = head(KEYS[2])
if first == '' then
  redis.call('HSET', KEYS[1], 'st', 'idle')
  redis.call('ZREM', KEYS[6], ARGV[2])
  return {0, record}
end
if ARGV[4] ~= '1' then return {2, record, wake(KEYS[1], KEYS[6], ARGV[2])} end
redis.call('HSET', KEYS[1], 'hs', seqOf(first), 'try', 0)
redis.call('ZADD', KEYS[6], now(), ARGV[2])
return {1, record, first}`;

/** -> 1 | 0 fenced */
export const emitLua = `${gate}${emit}
-- KEYS session events | ARGV epoch sid channel batch nEvents
if fenced(KEYS[1], ARGV[1]) then return 0 end
emit(KEYS[1], KEYS[2], ARGV[3], ARGV[2], ARGV[4], tonumber(ARGV[5]))
return 1`;

/** -> 1 | 0 answered or not known */
export const reportLua = `${emit}
-- KEYS session calls events | ARGV sid callId channel batch
local call = redis.call('HGET', KEYS[2], ARGV[2])
if not call or call == 'done' then return 0 end
emit(KEYS[1], KEYS[3], ARGV[3], ARGV[1], ARGV[4], 1)
return 1`;

/** -> run | closed | started_before */
export const beginLua = `${audit}${calls}
-- KEYS calls audit | ARGV sid callId effect runner auditMax
local call, facts = openCall(KEYS[1], ARGV[2])
if not call then return 'closed' end
if call == 'started' and ARGV[3] == 'once' then return 'started_before' end
if call == 'open' then redis.call('HSET', KEYS[1], ARGV[2], 'started ' .. facts) end
audit(KEYS[2], 'call_started', ARGV[1], ARGV[2], facts, {runner = ARGV[4]})
return 'run'`;

/** -> generation to add a job for, or 0. A running session counts a crash of its head message. */
export const healLua = `${time}${gate}
-- KEYS session inbox control dirty | ARGV sid deadGen
local v = redis.call('HMGET', KEYS[1], 'st', 'gen', 'rg')
local st = v[1] or 'idle'
if st == 'queued' then redis.call('ZADD', KEYS[4], now(), ARGV[1]); return tonumber(v[2]) end
if st == 'running' then
  if v[3] ~= ARGV[2] then return 0 end
  redis.call('HINCRBY', KEYS[1], 'try', 1)
  return wake(KEYS[1], KEYS[4], ARGV[1])
end
if redis.call('LLEN', KEYS[3]) > 0 or (st == 'idle' and redis.call('LLEN', KEYS[2]) > 0) then
  return wake(KEYS[1], KEYS[4], ARGV[1])
end
redis.call('ZREM', KEYS[4], ARGV[1])
return 0`;

/** -> {state, gen, waiting, messages, unsent, head or '', turn or '', settings or '', messages of the context} */
export const summaryLua = `${gate}
-- KEYS session inbox history outbox
local v = redis.call('HMGET', KEYS[1], 'st', 'gen', 'turn', 'set', 'cs', 'ep')
local waiting, messages = redis.call('LLEN', KEYS[2]), redis.call('LLEN', KEYS[3])
local unsent = redis.call('LLEN', KEYS[4])
return {v[1] or 'idle', v[2] or 0, waiting, messages, unsent, head(KEYS[2]), v[3] or '', v[4] or '',
  messages - tonumber(v[5] or 0), v[6] or '0'}`;

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
export const saveCardsLua = `${time}${gate}${recordId}
-- KEYS session inbox outbox cards openCards | ARGV sid replyId reply fence epoch|outboxToken
if ARGV[4] == 'epoch' then
  if fenced(KEYS[1], ARGV[5]) then return 0 end
  if ARGV[1] .. '-' .. (seqOf(head(KEYS[2])) or '') ~= ARGV[2] then return 0 end
else
  if redis.call('HGET', KEYS[1], 'olt') ~= ARGV[5] then return 0 end
  local record = redis.call('LINDEX', KEYS[3], 0)
  if not record or recordId(record) ~= ARGV[2] then return 0 end
end
redis.call('HSET', KEYS[4], ARGV[2], ARGV[3])
redis.call('ZADD', KEYS[5], now(), ARGV[1] .. '|' .. ARGV[2])
return 1`;
