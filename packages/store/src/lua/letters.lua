-- Of each cell: a hash with letters and, under the member and '|cards', the cards of a reply; and an index of members by
-- the time when they were written. Both are gone when nothing has been added for as long as a letter is kept.
--
-- KEYS letters lettersByTime
-- ARGV member

-- include now

local function forget(old)
  redis.call('HDEL', letters, old, old .. '|cards')
  return redis.call('ZREM', lettersByTime, old)
end
local function keep(letter, keptMs, most)
  redis.call('HSET', letters, member, letter)
  redis.call('ZADD', lettersByTime, now(), member)
  for _, old in ipairs(redis.call('ZRANGEBYSCORE', lettersByTime, '-inf', now() - keptMs)) do forget(old) end
  local tooMany = redis.call('ZCARD', lettersByTime) - most
  if tooMany > 0 then
    for _, old in ipairs(redis.call('ZRANGE', lettersByTime, 0, tooMany - 1)) do forget(old) end
  end
  redis.call('PEXPIRE', letters, keptMs)
  redis.call('PEXPIRE', lettersByTime, keptMs)
end
