// Looking after what is stored: each script decides and acts in one step, so that nothing can happen to
// the session in between.

import { rising, time } from "./lua-fragments.ts";

/** -> 1 | 0 its last turn has ended since: it has to be looked after again. */
export const tendedLua = `
-- KEYS untended | ARGV sid endedAtMs
if redis.call('ZSCORE', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
return redis.call('ZREM', KEYS[1], ARGV[1])`;

/** -> {number of the first message that is read, messages, people} */
export const readHistoryLua = `
-- KEYS state history who | ARGV from most
local base = tonumber(redis.call('HGET', KEYS[1], 'hb') or 0)
local first = math.max(tonumber(ARGV[1]) - base, 0)
local most = tonumber(ARGV[2])
local messages = most == 0 and {} or redis.call('LRANGE', KEYS[2], first, first + most - 1)
return {base + first, messages, redis.call('HGETALL', KEYS[3])}`;

/** -> 1 | 0 they are counted from there, or from higher up. */
export const renumberLua = `
-- KEYS state | ARGV first
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
if tonumber(redis.call('HGET', KEYS[1], 'hb') or 0) >= tonumber(ARGV[1]) then return 0 end
redis.call('HSET', KEYS[1], 'hb', ARGV[1])
return 1`;

/** -> how many messages were dropped: of those that no claim hands out any more, and not beyond 'archived'. */
export const trimLua = `
-- KEYS state history | ARGV keep archived|''
local v = redis.call('HMGET', KEYS[1], 'cs', 'hb')
local start, base = tonumber(v[1] or 0), tonumber(v[2] or 0)
local drop = start - tonumber(ARGV[1])
if ARGV[2] ~= '' then drop = math.min(drop, tonumber(ARGV[2]) - base) end
if drop <= 0 then return 0 end
redis.call('LTRIM', KEYS[2], drop, -1)
redis.call('HSET', KEYS[1], 'cs', start - drop, 'hb', base + drop)
return drop`;

/** What a session is asked again after when it is in use although it has been silent for so long. */
const busyMs = 3_600_000;

/**
 * -> removed | in_use | changed. Takes everything that belongs to the session but the ids of its messages,
 * which have their own time.
 */
export const removeLua = `${time}
-- KEYS session inbox control calls history events outbox cards pending kept who
--      floor ended untended dirty due openCards expiries approvalCards people requests state
-- ARGV sid beforeMs|'' known|'' approvals said
local sid = ARGV[1]
local v = redis.call('HMGET', KEYS[1], 'st', 'seq', 'gen', 'es')
local base = redis.call('HGET', KEYS[22], 'hb')
if ARGV[2] ~= '' then
  local endedAtMs = redis.call('ZSCORE', KEYS[13], sid)
  if not endedAtMs or tonumber(endedAtMs) >= tonumber(ARGV[2]) then return 'changed' end
end
local inUse = (v[1] or 'idle') ~= 'idle' or redis.call('LLEN', KEYS[2]) > 0 or redis.call('LLEN', KEYS[3]) > 0
  or redis.call('LLEN', KEYS[21]) > 0
if ARGV[2] ~= '' and not inUse then
  inUse = redis.call('LLEN', KEYS[7]) > 0 or redis.call('HLEN', KEYS[8]) > 0 or redis.call('ZCARD', KEYS[9]) > 0
  -- Others come first; this one has its turn again.
  if inUse then redis.call('ZADD', KEYS[13], math.min(now(), tonumber(ARGV[2]) + ${busyMs}), sid) end
end
if inUse then return 'in_use' end
local length = tonumber(base or 0) + redis.call('LLEN', KEYS[5])
if ARGV[3] ~= '' and tonumber(ARGV[3]) < length then return 'changed' end

local floor = redis.call('HMGET', KEYS[12], 'seq', 'gen', 'es', 'hb')
local function above(at, value) return string.format('%.0f', math.max(tonumber(floor[at] or 0), tonumber(value or 0))) end
redis.call('HSET', KEYS[12], 'seq', above(1, v[2]), 'gen', above(2, v[3]), 'es', above(3, v[4]), 'hb', above(4, length))

for _, id in ipairs(redis.call('ZRANGE', KEYS[10], 0, -1)) do
  redis.call('UNLINK', ARGV[4] .. ':' .. id, ARGV[5] .. ':' .. id)
  redis.call('ZREM', KEYS[18], sid .. '|' .. id)
  redis.call('ZREM', KEYS[19], sid .. '|' .. id)
end
for _, reply in ipairs(redis.call('HKEYS', KEYS[8])) do redis.call('ZREM', KEYS[17], sid .. '|' .. reply) end
for _, person in ipairs(redis.call('HKEYS', KEYS[11])) do redis.call('ZREM', KEYS[20], person .. '|' .. sid) end
for at = 13, 16 do redis.call('ZREM', KEYS[at], sid) end
for at = 1, 11 do redis.call('UNLINK', KEYS[at]) end
redis.call('UNLINK', KEYS[21], KEYS[22])
return 'removed'`;

/**
 * -> how many messages were replaced. What claims have read of the history is void, and so is a summary,
 * since nobody knows what stands in it.
 */
export const redactLua = `${time}${rising}
-- KEYS session history events kept expiries approvalCards state
-- ARGV sid marker nNumbers approvals said number... approvalId...
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
local base, length = tonumber(redis.call('HGET', KEYS[7], 'hb') or 0), redis.call('LLEN', KEYS[2])
local replaced, rest = 0, 6 + tonumber(ARGV[3])
for i = 6, rest - 1 do
  local at = tonumber(ARGV[i]) - base
  if at >= 0 and at < length then
    redis.call('LSET', KEYS[2], at, ARGV[2])
    replaced = replaced + 1
  end
end
for i = rest, #ARGV do
  local said, member = ARGV[5] .. ':' .. ARGV[i], ARGV[1] .. '|' .. ARGV[i]
  if (redis.call('HGET', said, 'st') or 'pending') ~= 'pending' then
    redis.call('UNLINK', ARGV[4] .. ':' .. ARGV[i], said)
    redis.call('ZREM', KEYS[4], ARGV[i])
    redis.call('ZREM', KEYS[5], member)
    redis.call('ZREM', KEYS[6], member)
  end
end
redis.call('HDEL', KEYS[7], 'sm')
redis.call('HSET', KEYS[7], 'hv', above(redis.call('HGET', KEYS[7], 'hv')))
redis.call('UNLINK', KEYS[3])
return replaced`;

/** -> 1 | 0 there is something newer, perhaps of that person. The session is not found under them any more. */
export const forgetLua = `
-- KEYS state inbox history who people | ARGV sid person known
local length = tonumber(redis.call('HGET', KEYS[1], 'hb') or 0) + redis.call('LLEN', KEYS[3])
if length > tonumber(ARGV[3]) then return 0 end
if redis.call('HGET', KEYS[1], 'waits:' .. ARGV[2]) then return 0 end
for _, entry in ipairs(redis.call('LRANGE', KEYS[2], 0, -1)) do
  if cjson.decode(string.match(entry, '^%d+:(.*)$')).sender.id == ARGV[2] then return 0 end
end
redis.call('ZREM', KEYS[5], ARGV[2] .. '|' .. ARGV[1])
redis.call('HDEL', KEYS[4], ARGV[2])
return 1`;

/** -> 1 | 0 known before, or nothing is stored of it. */
export const adoptLua = `${time}
-- KEYS session ended untended | ARGV sid
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
if redis.call('ZADD', KEYS[2], 'NX', now(), ARGV[1]) == 0 then return 0 end
redis.call('ZADD', KEYS[3], 'NX', now(), ARGV[1])
return 1`;
