import { outbox, recordId, time } from "./lua-fragments.ts";

// Of each cell: a hash with letters and, under the member and '|cards', the cards of a reply; and an index of
// members by the time when they were written. Both are gone when nothing has been added for as long as a letter is kept.

const keep = `
local function forget(letters, index, member)
  redis.call('HDEL', letters, member, member .. '|cards')
  return redis.call('ZREM', index, member)
end
local function keep(letters, index, member, letter, keptMs, most)
  redis.call('HSET', letters, member, letter)
  redis.call('ZADD', index, now(), member)
  for _, old in ipairs(redis.call('ZRANGEBYSCORE', index, '-inf', now() - keptMs)) do forget(letters, index, old) end
  local tooMany = redis.call('ZCARD', index) - most
  if tooMany > 0 then
    for _, old in ipairs(redis.call('ZRANGE', index, 0, tooMany - 1)) do forget(letters, index, old) end
  end
  redis.call('PEXPIRE', letters, keptMs)
  redis.call('PEXPIRE', index, keptMs)
end
`;

export const addLetterLua = `${time}${keep}
-- KEYS letters index | ARGV member letter keptMs most
keep(KEYS[1], KEYS[2], ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]))`;

/** -> next record or ''. As ackOutbox, and the head becomes a letter. */
export const buryLua = `${time}${outbox}${recordId}${keep}
-- KEYS session outbox due cards openCards letters index | ARGV sid token leaseMs member letter keptMs most
if redis.call('HGET', KEYS[1], 'olt') ~= ARGV[2] then return '' end
local given = redis.call('LPOP', KEYS[2])
if given then
  local reply = recordId(given)
  local cards = redis.call('HGET', KEYS[4], reply)
  keep(KEYS[6], KEYS[7], ARGV[4], ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7]))
  if cards then
    redis.call('HSET', KEYS[6], ARGV[4] .. '|cards', cards)
    redis.call('HDEL', KEYS[4], reply)
    redis.call('ZREM', KEYS[5], ARGV[1] .. '|' .. reply)
  end
end
redis.call('HDEL', KEYS[1], 'olt', 'ole', 'ort')
if redis.call('LLEN', KEYS[2]) == 0 then redis.call('ZREM', KEYS[3], ARGV[1]); return '' end
return lease(KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[2], tonumber(ARGV[3]))`;

/** -> 1 | 0 no such letter. */
export const resendLua = `${time}${keep}
-- KEYS outbox due cards openCards letters index | ARGV sid member record replyId
if redis.call('HEXISTS', KEYS[5], ARGV[2]) == 0 then return 0 end
local cards = redis.call('HGET', KEYS[5], ARGV[2] .. '|cards')
if cards then
  redis.call('HSET', KEYS[3], ARGV[4], cards)
  redis.call('ZADD', KEYS[4], now(), ARGV[1] .. '|' .. ARGV[4])
end
redis.call('RPUSH', KEYS[1], ARGV[3])
redis.call('ZADD', KEYS[2], 'NX', now(), ARGV[1])
forget(KEYS[5], KEYS[6], ARGV[2])
return 1`;
