// The gate: one hash per session holds its state (st: idle | queued | running | suspended), the
// last generation handed out (gen), the generation being run (rg), the fencing epoch (ep), counters
// (seq, es), the head message's number and crashes (hs, try), its owner (own), the checkpoint
// (turn), the history's version (hv) and the outbox lease (olt, ole, ort).

const time = `
local function now() local t = redis.call('TIME'); return t[1] * 1000 + math.floor(t[2] / 1000) end
`;

const gate = `
local function wake(s, dirty, sid)
  redis.call('HSET', s, 'st', 'queued')
  redis.call('ZADD', dirty, now(), sid)
  return redis.call('HINCRBY', s, 'gen', 1)
end
local function fenced(s, ep) return redis.call('HGET', s, 'ep') ~= ep end
local function head(inbox) return redis.call('LINDEX', inbox, 0) or '' end
local function seqOf(entry) return string.match(entry, '^(%d+):') end
`;

// One stream entry and one publication per batch; the entry's id is the seq of its last event.
const emit = `
local function emit(s, ev, channel, sid, batch, n)
  if n == 0 then return end
  local last = redis.call('HINCRBY', s, 'es', n)
  redis.call('XADD', ev, 'MAXLEN', '~', 2000, last .. '-0', 'n', n, 'd', batch)
  redis.call('PEXPIRE', ev, 86400000)
  redis.call('PUBLISH', channel, (last - n + 1) .. ':' .. batch)
end
`;

const appendHistory = `
local function appendHistory(h, from, n)
  if n > 0 then redis.call('RPUSH', h, unpack(ARGV, from, from + n - 1)) end
end
`;

const outbox = `
local function lease(s, ob, due, sid, token, ms)
  local v = redis.call('HMGET', s, 'ole', 'ort')
  local t = now()
  if tonumber(v[1] or 0) > t or tonumber(v[2] or 0) > t then return '' end
  local record = redis.call('LINDEX', ob, 0)
  if not record then return '' end
  redis.call('HSET', s, 'olt', token, 'ole', t + ms)
  redis.call('ZADD', due, t + ms, sid)
  return record
end
`;

/** -> {result, seq, wakeGen, eventSeq} */
export const appendLua = `${time}${gate}
-- KEYS session inbox dirty seen | ARGV sid message seenTtlMs maxWaiting
local v = redis.call('HMGET', KEYS[1], 'st', 'gen', 'es')
local st = v[1] or 'idle'
local known = redis.call('GET', KEYS[4])
if known then return {'duplicate', known, st == 'queued' and v[2] or 0} end
if redis.call('LLEN', KEYS[2]) >= tonumber(ARGV[4]) then return {'full', 0, 0} end
local seq = redis.call('HINCRBY', KEYS[1], 'seq', 1)
redis.call('SET', KEYS[4], seq, 'PX', ARGV[3])
redis.call('RPUSH', KEYS[2], seq .. ':' .. ARGV[2])
local gen = st == 'idle' and wake(KEYS[1], KEYS[3], ARGV[1]) or 0
return {'accepted', seq, gen, v[3] or 0}`;

/** -> {accepted, wakeGen}. The first answer to a call wins. */
export const deliverLua = `${time}${gate}
-- KEYS session control dirty calls deadlines | ARGV sid callId entry
redis.call('ZREM', KEYS[5], ARGV[1] .. '|' .. ARGV[2])
local v = redis.call('HMGET', KEYS[1], 'st', 'gen')
local st = v[1] or 'idle'
local call = redis.call('HGET', KEYS[4], ARGV[2])
if not call or call == 'done' then return {0, st == 'queued' and v[2] or 0} end
redis.call('HSET', KEYS[4], ARGV[2], 'done')
redis.call('RPUSH', KEYS[2], ARGV[3])
if st == 'suspended' or st == 'idle' then return {1, wake(KEYS[1], KEYS[3], ARGV[1])} end
return {1, 0}`;

/** -> {accepted, wakeGen}. A cancelled waiting message leaves the inbox and its run is logged as done. */
export const cancelLua = `${time}${gate}${emit}
-- KEYS session inbox control dirty events | ARGV sid seq|'' entry channel doneBatch
local v = redis.call('HMGET', KEYS[1], 'st', 'gen')
local st = v[1] or 'idle'
if st == 'idle' then return {0, 0} end
if ARGV[2] == '' or seqOf(head(KEYS[2])) == ARGV[2] then
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

/** -> nil | {epoch, turn, head, tries, historyVersion, historyLength, history tail, control} */
export const claimLua = `${time}${gate}
-- KEYS session inbox control history dirty | ARGV sid gen owner knownVersion knownLength
local v = redis.call('HMGET', KEYS[1], 'st', 'rg', 'turn', 'hs', 'try', 'hv', 'ep')
local st = v[1] or 'idle'
if st == 'idle' then return false end
if st ~= 'queued' and v[2] ~= ARGV[2] then return false end
local first = head(KEYS[2])
local seq = seqOf(first) or '0'
local tries = tonumber(v[5] or 0)
if v[4] ~= seq then tries = 0 elseif st == 'running' then tries = tries + 1 end
-- max(previous + 1, server time): monotonic even if the hash was lost or a failover dropped writes
local t = redis.call('TIME')
local ep = string.format('%.0f', math.max(tonumber(v[7] or 0) + 1, t[1] * 1000000 + t[2]))
redis.call('HSET', KEYS[1], 'st', 'running', 'rg', ARGV[2], 'own', ARGV[3], 'hs', seq, 'try', tries, 'ep', ep)
redis.call('ZADD', KEYS[5], t[1] * 1000 + math.floor(t[2] / 1000), ARGV[1])
local version = v[6] or '0'
local from = version == ARGV[4] and ARGV[5] or 0
return {ep, v[3] or '', first, tries, version, from, redis.call('LRANGE', KEYS[4], from, -1), redis.call('LRANGE', KEYS[3], 0, -1)}`;

/** -> -1 fenced | 0 suspended or handed off | unread control entries */
export const saveLua = `${time}${gate}${emit}${appendHistory}
-- KEYS session control calls deadlines dirty history events
-- ARGV epoch sid turn consumed then channel batch nEvents nHistory nOpen message... (callId deadlineMs)...
if fenced(KEYS[1], ARGV[1]) then return -1 end
local nHistory, nOpen = tonumber(ARGV[9]), tonumber(ARGV[10])
redis.call('HSET', KEYS[1], 'turn', ARGV[3])
if ARGV[4] ~= '0' then redis.call('LTRIM', KEYS[2], ARGV[4], -1) end
appendHistory(KEYS[6], 11, nHistory)
emit(KEYS[1], KEYS[7], ARGV[6], ARGV[2], ARGV[7], tonumber(ARGV[8]))
for i = 11 + nHistory, 10 + nHistory + 2 * nOpen, 2 do
  if redis.call('HSETNX', KEYS[3], ARGV[i], 'open') == 1 then
    redis.call('ZADD', KEYS[4], ARGV[i + 1], ARGV[2] .. '|' .. ARGV[i])
  end
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
export const commitLua = `${time}${gate}${emit}${appendHistory}${outbox}
-- KEYS session inbox control calls deadlines dirty history events outbox due
-- ARGV epoch sid seq more channel batch nEvents outboxRecord leaseToken leaseMs nHistory message...
if fenced(KEYS[1], ARGV[1]) then return {-1} end
-- A turn that was committed before is not committed again, even under the same epoch.
if (seqOf(head(KEYS[2])) or '0') ~= ARGV[3] then return {-1} end
redis.call('LPOP', KEYS[2])
appendHistory(KEYS[7], 12, tonumber(ARGV[11]))
emit(KEYS[1], KEYS[8], ARGV[5], ARGV[2], ARGV[6], tonumber(ARGV[7]))
local calls = redis.call('HGETALL', KEYS[4])
for i = 1, #calls, 2 do
  if calls[i + 1] ~= 'done' then redis.call('ZREM', KEYS[5], ARGV[2] .. '|' .. calls[i]) end
end
redis.call('HDEL', KEYS[1], 'turn')
redis.call('DEL', KEYS[3], KEYS[4])
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
export const beginLua = `
-- KEYS calls | ARGV callId effect
local call = redis.call('HGET', KEYS[1], ARGV[1])
if call == 'open' then redis.call('HSET', KEYS[1], ARGV[1], 'started'); return 'run' end
if call == 'started' then return ARGV[2] == 'once' and 'started_before' or 'run' end
return 'closed'`;

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

/** -> record or ''. */
export const pushOutboxLua = `${time}${outbox}
-- KEYS session outbox due seen | ARGV sid record seenTtlMs leaseToken leaseMs
if not redis.call('SET', KEYS[4], '0', 'NX', 'PX', ARGV[3]) then return '' end
redis.call('RPUSH', KEYS[2], ARGV[2])
redis.call('ZADD', KEYS[3], 'NX', now(), ARGV[1])
return lease(KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[4], tonumber(ARGV[5]))`;

/** -> record or ''. */
export const leaseOutboxLua = `${time}${outbox}
-- KEYS session outbox due | ARGV sid leaseToken leaseMs
if redis.call('LLEN', KEYS[2]) == 0 then redis.call('ZREM', KEYS[3], ARGV[1]); return '' end
return lease(KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[2], tonumber(ARGV[3]))`;

/** -> next record or ''. A token that is not the current one changes nothing. */
export const ackOutboxLua = `${time}${outbox}
-- KEYS session outbox due | ARGV sid leaseToken leaseMs
if redis.call('HGET', KEYS[1], 'olt') ~= ARGV[2] then return '' end
redis.call('LPOP', KEYS[2])
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
