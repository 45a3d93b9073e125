-- Removes memories. -> how many there were
--
-- KEYS memories memory forgotten lookUp
-- ARGV
--   knownMs     how long a repeated call finds that its memory was taken away
--   members...

-- include now
-- include memories

local count = 0
for _, member in ipairs(members) do
  if drop(member) == 1 then
    count = count + 1
    redis.call('ZADD', forgotten, string.format('%.0f', now()), member)
    redis.call('PEXPIRE', forgotten, knownMs)
  end
end
redis.call('ZREMRANGEBYSCORE', forgotten, '-inf', string.format('%.0f', now() - tonumber(knownMs)))
return count
