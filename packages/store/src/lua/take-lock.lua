-- Takes the lock of an object, or waits in line for it: those who wait ask again, and drop out when they do not. People
-- take turns: the n-th call of a person who waits is in the n-th round. -> ms until asking again makes sense; 0 it is theirs
--
-- KEYS
--   lock     hash: `holder`, `heldUntil` and `nextAt` in ms, `round`, `count` of calls that came
--   waiting  sorted set of calls by round
--   seen     sorted set of the same by the time until which they count as waiting
-- ARGV
--   ticket   of the call
--   person
--   holdMs   how long it is held without being taken again; 0: it is not held
--   everyMs  between two calls
--   renews   '1': it is only held longer, where it is theirs

-- include now

local nowMs = exactNow()
local entry = redis.call('HMGET', lock, 'holder', 'heldUntil', 'nextAt', 'round', 'count')
local isHeld = entry[1] and tonumber(entry[2]) > nowMs
if isHeld and entry[1] == ticket then
  redis.call('HSET', lock, 'heldUntil', string.format('%.0f', nowMs + tonumber(holdMs)))
  return 0
end
if renews == '1' then return 1 end
for _, gone in ipairs(redis.call('ZRANGEBYSCORE', seen, '-inf', string.format('%.0f', nowMs))) do
  redis.call('ZREM', waiting, gone)
  redis.call('ZREM', seen, gone)
end
local line = redis.call('ZRANGE', waiting, 0, -1, 'WITHSCORES')
local mine, before, others = nil, 0, 0
for i = 1, #line, 2 do
  local _, _, other, whose = string.find(line[i], '^%d+ (%S+) (.*)$')
  if other == ticket then mine, before = line[i], (i - 1) / 2 end
  if whose == person then others = others + 1 end
end
if not mine then
  local round = tonumber(entry[4] or '0') + 1 + others
  mine = string.format('%012d %s %s', tonumber(entry[5] or '0'), ticket, person)
  redis.call('HINCRBY', lock, 'count', 1)
  redis.call('ZADD', waiting, round, mine)
  before = redis.call('ZRANK', waiting, mine)
end
redis.call('ZADD', seen, string.format('%.0f', nowMs + 5000), mine)
for _, key in ipairs({lock, waiting, seen}) do redis.call('PEXPIRE', key, 60000 + tonumber(holdMs)) end
local nextIn = tonumber(entry[3] or '0') - nowMs
if isHeld or before > 0 or nextIn > 0 then
  local turn = math.max(30, nextIn, before * math.max(30, tonumber(everyMs)))
  return math.ceil(math.min(1000, turn))
end
redis.call('HSET', lock, 'round', redis.call('ZSCORE', waiting, mine), 'nextAt', string.format('%.0f', nowMs + tonumber(everyMs)))
if tonumber(holdMs) > 0 then
  redis.call('HSET', lock, 'holder', ticket, 'heldUntil', string.format('%.0f', nowMs + tonumber(holdMs)))
end
redis.call('ZREM', waiting, mine)
redis.call('ZREM', seen, mine)
return 0
