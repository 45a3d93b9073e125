import { audit, time } from "./lua-fragments.ts";

// Rules only workers write: a decision that a worker has checked becomes one. That a rule is revoked is written beside
// it, by ingress, too, when a person says so.

/** -> rules as JSON, but for those revoked. KEYS index rules revoked */
export const rulesInForceLua = `${time}
local ids = redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. string.format('%.0f', now()), '+inf')
if #ids == 0 then return {} end
local rules = {}
-- In portions: unpack has a limit.
for from = 1, #ids, 500 do
  local portion = redis.call('HMGET', KEYS[2], unpack(ids, from, math.min(from + 499, #ids)))
  local revoked = redis.call('HMGET', KEYS[3], unpack(ids, from, math.min(from + 499, #ids)))
  for i, rule in ipairs(portion) do if rule and not revoked[i] then rules[#rules + 1] = rule end end
end
return rules`;

/** -> 1 | 0 was added before. What is long over is forgotten. */
export const addRuleLua = `${time}${audit}
-- KEYS rules byExpiry ofChat audit revoked | ARGV id rule expiresAtMs facts person keepMs auditMax
local over = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now() - tonumber(ARGV[6]), 'LIMIT', 0, 100)
for _, id in ipairs(over) do
  redis.call('HDEL', KEYS[1], id)
  redis.call('HDEL', KEYS[5], id)
  redis.call('ZREM', KEYS[2], id)
end
if redis.call('HSETNX', KEYS[1], ARGV[1], ARGV[2]) == 0 then return 0 end
redis.call('ZADD', KEYS[2], ARGV[3], ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', now())
redis.call('ZADD', KEYS[3], ARGV[3], ARGV[1])
redis.call('PEXPIREAT', KEYS[3], redis.call('ZREVRANGE', KEYS[3], 0, 0, 'WITHSCORES')[2])
audit(KEYS[4], 'rule_added', '', '', ARGV[4], {person = ARGV[5]})
return 1`;

/** -> nil not in force | the rule as it was. It stays, revoked, so that adding it again has no effect. */
export const revokeRuleLua = `${time}${audit}
-- KEYS rules ofChat audit revoked | ARGV id by facts person auditMax
local expiresAtMs = redis.call('ZSCORE', KEYS[2], ARGV[1])
if not expiresAtMs or tonumber(expiresAtMs) <= now() then return false end
local rule = redis.call('HGET', KEYS[1], ARGV[1])
local revoked = '{"by":' .. ARGV[2] .. ',"atMs":' .. string.format('%.0f', now()) .. '}'
if redis.call('HSETNX', KEYS[4], ARGV[1], revoked) == 0 then return false end
audit(KEYS[3], 'rule_revoked', '', '', ARGV[3], {person = ARGV[4]})
return rule`;

/** -> 1 | 0 it holds. */
export const forgetRuleLua = `${time}
-- KEYS rules byExpiry ofChat revoked | ARGV id
local expiresAtMs = redis.call('ZSCORE', KEYS[3], ARGV[1])
local holds = expiresAtMs and tonumber(expiresAtMs) > now()
if holds and redis.call('HEXISTS', KEYS[4], ARGV[1]) == 0 then return 0 end
redis.call('HDEL', KEYS[4], ARGV[1])
redis.call('ZREM', KEYS[3], ARGV[1])
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('HDEL', KEYS[1], ARGV[1])
return 1`;

/** -> how many approvals there are. More than a thousand need not be told apart. */
export const approvedAgainLua = `
-- KEYS approved | ARGV approvalId ttlMs
if redis.call('SCARD', KEYS[1]) < 1000 then redis.call('SADD', KEYS[1], ARGV[1]) end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return redis.call('SCARD', KEYS[1])`;
