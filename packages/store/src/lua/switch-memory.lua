-- Switches the memory of a person off or on. -> how many memories were removed
--
-- KEYS memories memory off lookUp
-- ARGV
--   state  'off', 'on', or 'erased': nothing is left, not even the wish

-- include memories

local count = 0
if state ~= 'on' then
  redis.call('DEL', lookUp)
  for _, member in ipairs(redis.call('ZRANGE', memories, 0, -1)) do count = count + drop(member) end
end
if state == 'off' then redis.call('SET', off, '1') else redis.call('DEL', off) end
return count
