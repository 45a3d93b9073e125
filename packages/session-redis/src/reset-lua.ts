import { approvals } from "./approval-lua.ts";
import { audit, emit, gate, rising, setContext, time } from "./lua-fragments.ts";

/**
 * -> {-1} another message is at the head by now, or its turn has got its first card | {ended, wakeGen}. A turn has begun when its session runs or waits,
 * or is queued with a checkpoint or after a crash; a message that was only queued is not touched.
 */
export const resetLua = `${time}${gate}${rising}${emit}${setContext}${audit}${approvals}
-- KEYS session inbox control calls deadlines dirty history events outbox due audit approvals(6) ended untended cards
-- ARGV sid headSeq channel doneBatch reply|'' facts person hasCards auditMax
local first = head(KEYS[2])
local seq = seqOf(first) or '0'
local cards = redis.call('HGET', KEYS[19], ARGV[1] .. '-' .. seq)
if seq ~= ARGV[2] or (cards and '1' or '0') ~= ARGV[8] then return {-1} end
local v = redis.call('HMGET', KEYS[1], 'st', 'turn', 'hs', 'try', 'ep')
local st = v[1] or 'idle'
local begun = first ~= '' and st ~= 'idle'
  and (st ~= 'queued' or v[2] or (v[3] == seq and tonumber(v[4] or 0) > 0)) and true or false
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
redis.call('HSET', KEYS[1], 'ep', above(v[5]))
redis.call('HDEL', KEYS[1], 'turn', 'abs', 'hs', 'try')
redis.call('DEL', KEYS[3], KEYS[4])
setContext(KEYS[1], KEYS[7], '0', '')
if begun then
  redis.call('LPOP', KEYS[2])
  redis.call('ZADD', KEYS[17], now(), ARGV[1])
  redis.call('ZADD', KEYS[18], now(), ARGV[1])
  emit(KEYS[1], KEYS[8], ARGV[3], ARGV[1], ARGV[4], 1)
  if ARGV[5] ~= '' then
    redis.call('RPUSH', KEYS[9], ARGV[5])
    redis.call('ZADD', KEYS[10], 'NX', now(), ARGV[1])
  end
end
audit(KEYS[11], 'session_reset', ARGV[1], '', ARGV[6], {person = ARGV[7]})
local ended = begun and 1 or 0
if head(KEYS[2]) ~= '' then return {ended, wake(KEYS[1], KEYS[6], ARGV[1])} end
redis.call('HSET', KEYS[1], 'st', 'idle')
redis.call('ZREM', KEYS[6], ARGV[1])
return {ended, 0}`;
