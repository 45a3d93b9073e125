-- For tests: shortens the time to live of keys by as much as the clock of the tests was moved.
--
-- ARGV
--   ms
--   pattern  of keys

for _, key in ipairs(redis.call('KEYS', pattern)) do
  local left = redis.call('PTTL', key) - ms
  if left > 0 then redis.call('PEXPIRE', key, left) elseif redis.call('PTTL', key) >= 0 then redis.call('DEL', key) end
end
