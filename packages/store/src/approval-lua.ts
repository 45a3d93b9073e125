import { asides, audit, gate, owned, time } from "./lua-fragments.ts";

// Each approval has two hashes. The record only workers may write: the approval as it was created (a) and what the
// scripts need of it (kind, turn, call, exp, need, hash as JSON, hc: has any cards, f for the audit log). What was said,
// ingress writes, too, and workers check before they believe it: state (st, at; none: pending), who has said what (dec:
// JSON objects joined by commas; n:<word> counts and by:<word>:<person> tells them), and cards (cards; v counts what they
// are to show, cv what the holder of the lease has seen; ct and cu: token and end of the lease; tries).

/** How many arguments stand for one approval: id approval kind turnId callId createdAtMs expiresAtMs need hash hasCards facts. */
export const approvalSize = 11;

/**
 * Fragment of every script that creates or settles approvals; needs `time` and `audit`. Scripts that
 * seldom do have it in a block of its own: defining functions costs time, too.
 */
export const approvals = `
local weekMs = 604800000
-- KEYS from 'at' on: audit records pending kept expiries cards said. The hashes of an approval are 'records:<id>' and
-- 'said:<id>', in the same slot.
local function approvalKeys(at)
  return {audit = KEYS[at], records = KEYS[at + 1], pending = KEYS[at + 2],
    kept = KEYS[at + 3], expiries = KEYS[at + 4], cards = KEYS[at + 5], said = KEYS[at + 6]}
end

-- Forgets the oldest that nothing is left to do for, until one more has room.
local function makeRoom(k, sid, maxKept)
  redis.call('ZREMRANGEBYSCORE', k.kept, '-inf', now())
  local tooMany = redis.call('ZCARD', k.kept) + 1 - maxKept
  if tooMany <= 0 then return end
  for _, id in ipairs(redis.call('ZRANGE', k.kept, 0, -1)) do
    if tooMany <= 0 then return end
    if not redis.call('ZSCORE', k.pending, id) and not redis.call('ZSCORE', k.cards, sid .. '|' .. id) then
      redis.call('DEL', k.records .. ':' .. id, k.said .. ':' .. id)
      redis.call('ZREM', k.kept, id)
      tooMany = tooMany - 1
    end
  end
end

-- Has no time to live before it is settled: whoever waits for it must learn what became of it.
local function ask(k, sid, i, maxKept)
  local id, expiresAtMs = ARGV[i], tonumber(ARGV[i + 6])
  local record, member = k.records .. ':' .. id, sid .. '|' .. id
  if redis.call('EXISTS', record) == 1 then return end
  makeRoom(k, sid, maxKept)
  redis.call('HSET', record, 'a', ARGV[i + 1], 'kind', ARGV[i + 2], 'turn', ARGV[i + 3],
    'call', ARGV[i + 4], 'exp', ARGV[i + 6], 'need', ARGV[i + 7], 'hash', ARGV[i + 8], 'hc', ARGV[i + 9],
    'f', ARGV[i + 10])
  -- Those of one moment stay in the order in which they were asked.
  local place = math.min(redis.call('ZCARD', k.pending), 999) / 1000
  redis.call('ZADD', k.pending, tonumber(ARGV[i + 5]) + place, id)
  redis.call('ZADD', k.expiries, expiresAtMs, member)
  redis.call('ZADD', k.kept, expiresAtMs + weekMs, id)
  redis.call('PEXPIREAT', k.kept, redis.call('ZREVRANGE', k.kept, 0, 0, 'WITHSCORES')[2])
  if ARGV[i + 9] == '1' then redis.call('ZADD', k.cards, now(), member) end
  audit(k.audit, 'approval_requested', sid, ARGV[i + 4], ARGV[i + 10], {})
end

-- Whoever holds the cards learns of a change when they write; otherwise they are due at once.
local function changeCards(k, id, member)
  if redis.call('HGET', k.records .. ':' .. id, 'hc') ~= '1' then return end
  local said = k.said .. ':' .. id
  redis.call('HINCRBY', said, 'v', 1)
  redis.call('HDEL', said, 'tries')
  if tonumber(redis.call('HGET', said, 'cu') or 0) <= now() then redis.call('ZADD', k.cards, now(), member) end
end

local function become(k, sid, id, state)
  local record, said, member = k.records .. ':' .. id, k.said .. ':' .. id, sid .. '|' .. id
  local v = redis.call('HMGET', record, 'exp', 'call', 'f')
  redis.call('HSET', said, 'st', state, 'at', now())
  for _, key in ipairs({record, said}) do
    redis.call('PEXPIREAT', key, math.max(tonumber(v[1]), now()) + weekMs)
  end
  redis.call('ZREM', k.pending, id)
  redis.call('ZREM', k.expiries, member)
  changeCards(k, id, member)
  audit(k.audit, 'approval_settled', sid, v[2], v[3], {result = state})
end

-- The end of a turn, or of all if none is named: its questions are over.
local function cancel(k, sid, pending, turn)
  for _, id in ipairs(pending) do
    local v = redis.call('HMGET', k.records .. ':' .. id, 'kind', 'turn')
    if v[1] ~= 'rule' and (not turn or v[2] == turn) then become(k, sid, id, 'cancelled') end
  end
end
`;

// Answers are {result, approval, state, decisions, settledAtMs or '', wakeGen}.
const settling = `${time}${gate}${owned}${asides}${audit}${approvals}
-- KEYS session inbox requests dirty audit approvals... state | ARGV sid id ...
local k, sid, id = approvalKeys(5), ARGV[1], ARGV[2]
local record, said = k.records .. ':' .. id, k.said .. ':' .. id
local v = redis.call('HMGET', record, 'a', 'kind', 'turn', 'exp')
v[5] = redis.call('HGET', said, 'st') or 'pending'
local gateState = redis.call('HGET', KEYS[1], 'st') or 'idle'
local isExpired = v[4] and tonumber(v[4]) <= now()
local isAtHead = gateState ~= 'idle' and v[3] == sid .. '-' .. (seqOf(head(KEYS[2])) or '')
local othersWait = redis.call('HGET', state, 'waits')

local function answer(result, gen)
  local s = redis.call('HMGET', said, 'st', 'dec', 'at')
  return {result, v[1], s[1] or 'pending', s[2] or '', s[3] or '', gen or 0}
end

-- Settles and tells the session, if its turn waits for it. -> wakeGen
local function settle(state)
  become(k, sid, id, state)
  if v[2] == 'rule' then
    -- No turn waits for it: the worker that looks after its cards writes the rule, also where it has no cards.
    if state == 'approved' and redis.call('HGET', record, 'hc') ~= '1' then redis.call('ZADD', k.cards, now(), sid .. '|' .. id) end
    return 0
  end
  redis.call('RPUSH', KEYS[3], '{"type":"decision","turnId":"' .. v[3] .. '","approvalId":"' .. id .. '","argumentsHash":'
    .. redis.call('HGET', record, 'hash') .. ',"state":"' .. state .. '","decisions":['
    .. (redis.call('HGET', said, 'dec') or '') .. ']}')
  -- Of a turn set aside while another one waits for calls: it is heard after that.
  return gateState == 'suspended' and (isAtHead or othersWait) and wake(KEYS[1], KEYS[4], sid) or 0
end

-- Nothing to decide any more; a question whose turn is over is settled by that. -> nil | answer
local function closed()
  if v[5] == 'pending' and v[2] ~= 'rule' then
    if not isAtHead and not asideOf(numberOf(v[3])) then
      become(k, sid, id, 'cancelled')
      return answer('closed')
    end
  end
  if v[5] == 'pending' then return nil end
  return answer('closed', gateState == 'queued' and redis.call('HGET', KEYS[1], 'gen'))
end
`;

/** -> nil unknown | answer: settled | counted | repeated | closed */
export const decideLua = `${settling}
-- ARGV sid id word isAboutOutcome person decision stateAfter settlesAlone auditMax
if not v[1] or (v[2] == 'outcome') ~= (ARGV[4] == '1') then return false end
local over = closed()
if over then return over end
if isExpired then return answer('closed', settle('expired')) end
if redis.call('HSETNX', said, 'by:' .. ARGV[3] .. ':' .. ARGV[5], 1) == 0 then return answer('repeated') end
local known, w = redis.call('HGET', said, 'dec'), redis.call('HMGET', record, 'need', 'call', 'f')
local decision = '{"atMs":' .. string.format('%.0f', now()) .. ',' .. string.sub(ARGV[6], 2)
redis.call('HSET', said, 'dec', known and known .. ',' .. decision or decision)
audit(k.audit, 'approval_decided', sid, w[2], w[3], {result = ARGV[3], person = ARGV[5]})
local agreeing = redis.call('HINCRBY', said, 'n:' .. ARGV[3], 1)
if ARGV[8] == '1' or agreeing >= tonumber(w[1]) then return answer('settled', settle(ARGV[7])) end
changeCards(k, id, sid .. '|' .. id)
return answer('counted')`;

/** -> nil unknown | answer: settled | closed */
export const settleLua = `${settling}
-- ARGV sid id state auditMax
if not v[1] then return false end
local over = closed()
if over then return over end
if ARGV[3] == 'expired' and not isExpired then return answer('closed') end
return answer('settled', settle(ARGV[3]))`;

export const addApprovalLua = `${time}${audit}${approvals}
-- KEYS audit approvals... | ARGV sid maxKept approval... auditMax
ask(approvalKeys(1), ARGV[1], 3, tonumber(ARGV[2]))`;

/** -> {{approval, state, decisions, settledAtMs}...} */
export const approvedRulesLua = `
-- KEYS kept cards records said | ARGV sid
local rules = {}
for _, id in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
  local record, said = KEYS[3] .. ':' .. id, KEYS[4] .. ':' .. id
  if redis.call('ZSCORE', KEYS[2], ARGV[1] .. '|' .. id) and redis.call('HGET', record, 'kind') == 'rule' then
    local a, v = redis.call('HGET', record, 'a'), redis.call('HMGET', said, 'st', 'dec', 'at')
    if v[1] == 'approved' then rules[#rules + 1] = {a, v[1], v[2] or '', v[3] or ''} end
  end
end
return rules`;

/** -> nil | {approval, state, decisions, settledAtMs or '', cards or '', attempts} */
export const leaseCardsLua = `${time}
-- KEYS record said cards | ARGV member token leaseMs
local dueAtMs = redis.call('ZSCORE', KEYS[3], ARGV[1])
if not dueAtMs or tonumber(dueAtMs) > now() then return false end
local approval = redis.call('HGET', KEYS[1], 'a')
if not approval then redis.call('ZREM', KEYS[3], ARGV[1]); return false end
local v = redis.call('HMGET', KEYS[2], 'st', 'dec', 'at', 'cards', 'v')
local untilMs = now() + tonumber(ARGV[3])
redis.call('ZADD', KEYS[3], untilMs, ARGV[1])
redis.call('HSET', KEYS[2], 'ct', ARGV[2], 'cu', untilMs, 'cv', v[5] or '0')
local tries = redis.call('HINCRBY', KEYS[2], 'tries', 1)
return {approval, v[1] or 'pending', v[2] or '', v[3] or '', v[4] or '', tries - 1}`;

/** -> 1 | 0 not held any more. A late holder counts as long as nobody took over. */
export const saveApprovalCardsLua = `${time}
-- KEYS said cards | ARGV member token cards retryAtMs|''
local v = redis.call('HMGET', KEYS[1], 'ct', 'v', 'cv')
if v[1] ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], 'cards', ARGV[3])
redis.call('HDEL', KEYS[1], 'ct', 'cu', 'cv')
if (v[2] or '0') ~= v[3] then redis.call('ZADD', KEYS[2], now(), ARGV[1])
elseif ARGV[4] ~= '' then redis.call('ZADD', KEYS[2], ARGV[4], ARGV[1])
else redis.call('ZREM', KEYS[2], ARGV[1]) end
return 1`;
