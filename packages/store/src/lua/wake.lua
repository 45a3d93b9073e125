-- Queues the session under a new generation, which is returned; `gen` is the one before.
--
-- KEYS session dirty
-- ARGV sid

-- include now

local function wake(gen)
  local new = tonumber(gen or 0) + 1
  redis.call('HSET', session, 'state', 'queued', 'generation', new)
  redis.call('ZADD', dirty, now(), sid)
  return new
end
