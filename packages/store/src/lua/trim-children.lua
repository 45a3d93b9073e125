-- Removes ended children of a root whose end is long ago, some at a time; the root itself may be at work.
-- -> how many went
--
-- KEYS session children endedChildren childRoots
-- ARGV
--   sid
--   beforeMs  they have ended before
--   most      so many at a time

-- include remove-child

-- The version before has left those that have ended among those that work.
local left, working = tonumber(most), 0
local known = redis.call('HGETALL', children)
for i = 1, #known, 2 do
  local child, endedAtMs = known[i], string.match(known[i + 1], '"endedAtMs":(%d+)')
  if endedAtMs and left > 0 then
    left = left - 1
    redis.call('HDEL', children, child)
    redis.call('HSET', keyOf('s', child), 'facts', known[i + 1])
    redis.call('ZADD', endedChildren, endedAtMs, child)
  elseif string.find(child, '~', 1, true) and string.sub(child, 1, 6) ~= 'steps ' then
    working = working + 1
  end
end
local old = redis.call('ZRANGEBYSCORE', endedChildren, '-inf', '(' .. beforeMs, 'LIMIT', 0, most)
for _, child in ipairs(old) do
  removeChild(child)
  redis.call('ZREM', endedChildren, child)
end
local first = redis.call('ZRANGE', endedChildren, 0, 0, 'WITHSCORES')
if first[2] then redis.call('ZADD', childRoots, first[2], sid) else redis.call('ZREM', childRoots, sid) end
-- Numbers of steps are all that is left.
if working == 0 and (redis.call('HGET', session, 'state') or 'idle') == 'idle' then redis.call('UNLINK', children) end
return #old
