-- Lets one worker look after the schedules whose alarm has rung. Where it dies, they come back after the lease.
--
-- KEYS
--   due   alarms of all
--   rows  what the keys of schedules begin with
-- ARGV
--   limit
--   leaseMs
-- REPLY
--   nowMs    integer
--   claimed  rows
-- ROW
--   id          text
--   schedule    text
--   dueMs       integer
--   generation  integer
--   claimedMs   integer  when this instant was claimed first

-- include now

local claimed = {}
for _, id in ipairs(redis.call('ZRANGEBYSCORE', due, '-inf', now(), 'LIMIT', 0, limit)) do
  local v = redis.call('HMGET', rows .. ':' .. id, 'schedule', 'dueMs', 'generation', 'state')
  if v[4] == 'active' then
    redis.call('ZADD', due, now() + tonumber(leaseMs), id)
    redis.call('HSETNX', rows .. ':' .. id, 'claimedMs', now())
    local claimedMs = redis.call('HGET', rows .. ':' .. id, 'claimedMs')
    claimed[#claimed + 1] = row {id = id, schedule = v[1], dueMs = v[2], generation = v[3], claimedMs = claimedMs}
  else
    redis.call('ZREM', due, id)
  end
end
return respond {nowMs = now(), claimed = claimed}
