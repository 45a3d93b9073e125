import { audit, time } from "./lua-fragments.ts";

/** -> rules as JSON, those revoked among them. KEYS index rules */
export const rulesInForceLua = `${time}
local ids = redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. string.format('%.0f', now()), '+inf')
if #ids == 0 then return {} end
local rules = {}
-- In portions: unpack has a limit.
for from = 1, #ids, 500 do
  local portion = redis.call('HMGET', KEYS[2], unpack(ids, from, math.min(from + 499, #ids)))
  for _, rule in ipairs(portion) do if rule then rules[#rules + 1] = rule end end
end
return rules`;

/** -> 1 | 0 was added before. What is long over is forgotten. */
export const addRuleLua = `${time}${audit}
-- KEYS rules byExpiry ofChat audit | ARGV id rule expiresAtMs facts person keepMs auditMax
local over = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now() - tonumber(ARGV[6]), 'LIMIT', 0, 100)
for _, id in ipairs(over) do
  redis.call('HDEL', KEYS[1], id)
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
-- KEYS rules ofChat audit | ARGV id by facts person auditMax
local expiresAtMs = redis.call('ZSCORE', KEYS[2], ARGV[1])
if not expiresAtMs or tonumber(expiresAtMs) <= now() then return false end
local rule = redis.call('HGET', KEYS[1], ARGV[1])
local revoked = ',"revoked":{"by":' .. ARGV[2] .. ',"atMs":' .. string.format('%.0f', now()) .. '}}'
redis.call('HSET', KEYS[1], ARGV[1], string.sub(rule, 1, -2) .. revoked)
redis.call('ZREM', KEYS[2], ARGV[1])
audit(KEYS[3], 'rule_revoked', '', '', ARGV[3], {person = ARGV[4]})
return rule`;

/** -> 1 | 0 it holds. */
export const forgetRuleLua = `${time}
-- KEYS rules byExpiry ofChat | ARGV id
local expiresAtMs = redis.call('ZSCORE', KEYS[3], ARGV[1])
if expiresAtMs and tonumber(expiresAtMs) > now() then return 0 end
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
