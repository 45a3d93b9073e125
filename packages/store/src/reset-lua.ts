import { approvals } from "./approval-lua.ts";
import { asides, audit, choosing, emit, gate, owned, rising, setContext, time } from "./lua-fragments.ts";

/**
 * -> {-1} another message is at the head by now, or its turn has got its first card | {ended, wakeGen}. A turn has begun when its session runs or waits,
 * or is queued with a checkpoint or after a crash; a message that was only queued is not touched.
 */
export const resetLua = `${time}${gate}${owned}${asides}${choosing}${rising}${emit}${setContext}${audit}${approvals}
-- KEYS session inbox control calls deadlines dirty history events outbox due audit approvals(6) ended untended
--      requests cards state
-- ARGV sid headSeq channel doneBatch reply|'' facts person hasCards asides (seq doneBatch reply|'' hasCards)... auditMax
local first = head(KEYS[2])
local seq = seqOf(first) or '0'
local cards = redis.call('HGET', KEYS[21], ARGV[1] .. '-' .. seq)
if seq ~= ARGV[2] or (cards and '1' or '0') ~= ARGV[8] then return {-1} end
if asideList() ~= ARGV[9] then return {-1} end
for i = 10, #ARGV - 1, 4 do
  local known = redis.call('HGET', KEYS[21], ARGV[1] .. '-' .. ARGV[i])
  if (known and '1' or '0') ~= ARGV[i + 3] then return {-1} end
end
local function tell(batch, reply)
  emit(KEYS[1], KEYS[8], ARGV[3], ARGV[1], batch, 1)
  if reply == '' then return end
  redis.call('RPUSH', KEYS[9], reply)
  redis.call('ZADD', KEYS[10], 'NX', now(), ARGV[1])
end
local st = redis.call('HGET', KEYS[1], 'st') or 'idle'
local v = redis.call('HMGET', state, 'ep', 'turn', 'hs', 'try', 'lost')
local begun = first ~= '' and st ~= 'idle'
  and (st ~= 'queued' or v[2] or (v[3] == seq and (tonumber(v[4] or 0) > 0 or v[5]))) and true or false
local calls = redis.call('HGETALL', KEYS[4])
for i = 1, #calls, 2 do
  if calls[i + 1] ~= 'done' then
    redis.call('ZREM', KEYS[5], ARGV[1] .. '|' .. calls[i])
    local state, facts = string.match(calls[i + 1], '^(%a+) ?(.*)$')
    audit(KEYS[11], 'call_ended', ARGV[1], calls[i], facts, {result = state == 'started' and 'unknown' or 'cancelled'})
  end
end
local pending = redis.call('ZRANGE', KEYS[13], 0, -1)
if #pending > 0 then cancel(approvalKeys(11), ARGV[1], pending) end
redis.call('HSET', state, 'ep', above(v[1]))
redis.call('HDEL', state, 'turn', 'abs', 'needs', 'hs', 'try', 'lost', 'deaths', 'deathsAlone', 'set')
redis.call('DEL', KEYS[3], KEYS[4], KEYS[20])
setContext(KEYS[7], '0', '')
for i = 10, #ARGV - 1, 4 do
  bringBack(KEYS[2], KEYS[3], ARGV[i])
  redis.call('LPOP', KEYS[2])
  tell(ARGV[i + 1], ARGV[i + 2])
end
redis.call('DEL', KEYS[3])
redis.call('HDEL', state, 'waits', 'hs', unpack(turnFields))
if begun then
  redis.call('LPOP', KEYS[2])
  redis.call('ZADD', KEYS[18], now(), ARGV[1])
  redis.call('ZADD', KEYS[19], now(), ARGV[1])
  tell(ARGV[4], ARGV[5])
end
audit(KEYS[11], 'session_reset', ARGV[1], '', ARGV[6], {person = ARGV[7]})
local ended = begun and 1 or 0
if head(KEYS[2]) ~= '' then return {ended, wake(KEYS[1], KEYS[6], ARGV[1])} end
redis.call('HSET', KEYS[1], 'st', 'idle')
redis.call('ZREM', KEYS[6], ARGV[1])
return {ended, 0}`;
