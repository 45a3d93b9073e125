-- The call needs the object no longer: gives the lock back, or leaves the line. -> 1
--
-- KEYS
--   lock
--   waiting
--   seen
-- ARGV
--   ticket

if redis.call('HGET', lock, 'holder') == ticket then redis.call('HDEL', lock, 'holder', 'heldUntil') end
for _, mine in ipairs(redis.call('ZRANGE', waiting, 0, -1)) do
  local _, _, other = string.find(mine, '^%d+ (%S+) ')
  if other == ticket then
    redis.call('ZREM', waiting, mine)
    redis.call('ZREM', seen, mine)
  end
end
return 1
