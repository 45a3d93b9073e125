-- Closes the open calls of a turn that has ended.
--
-- KEYS calls deadlines
-- ARGV sid

-- include audit
-- include children

local function endCalls()
  local entries = redis.call('HGETALL', calls)
  for i = 1, #entries, 2 do
    if entries[i + 1] ~= 'done' then
      redis.call('ZREM', deadlines, sid .. '|' .. entries[i])
      local was, facts = string.match(entries[i + 1], '^(%a+) ?(.*)$')
      local child = string.match(facts, '"child":"([^"]+)"')
      if child then dropChild(child) end
      record('call_ended', sid, entries[i], facts, {result = was == 'started' and 'unknown' or 'cancelled'})
    end
  end
end
