-- Closes the open calls of a turn that has ended.
--
-- KEYS calls deadlines
-- ARGV sid

-- include audit
-- include children
-- include open-call

local function endCalls()
  local entries = redis.call('HGETALL', calls)
  for i = 1, #entries, 2 do
    local isCall = not string.find(entries[i], ' ', 1, true)
    if isCall and entries[i + 1] ~= 'done' then
      redis.call('ZREM', deadlines, sid .. '|' .. entries[i])
      local was, facts = string.match(entries[i + 1], '^(%a+) ?(.*)$')
      removeAnswer(entries[i], facts)
      local child = string.match(facts, '"child":"([^"]+)"')
      if child then dropChild(child) end
      record('call_ended', sid, entries[i], facts, {result = was == 'started' and 'unknown' or 'cancelled'})
    end
  end
end
