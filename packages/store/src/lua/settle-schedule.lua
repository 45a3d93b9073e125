-- An instant at which a schedule was due is dealt with: it is logged, and the next one is waited for, unless the
-- schedule was changed since. -> 1 | 0 it was dealt with before, or the schedule is gone
--
-- KEYS
--   row
--   due       alarms of all
--   all       ids of all by the time when they were made
--   ofPerson
--   ofChat
--   log
--   held  events that quiet hours have held
-- ARGV
--   id
--   generation
--   dueMs
--   nextMs   '': there is none, the schedule is done; 'event': it waits for one
--   alarmMs
--   causes   ids of the held events that have run, as a JSON list
--   lines    JSON texts as a JSON list, the oldest first
--   keep     lines of a log
--   keptMs   of one that is done

local v = redis.call('HMGET', row, 'generation', 'dueMs')
if not v[1] or (v[1] == generation and v[2] ~= dueMs) then return 0 end
for _, line in ipairs(cjson.decode(lines)) do redis.call('LPUSH', log, line) end
redis.call('LTRIM', log, 0, tonumber(keep) - 1)
if v[1] ~= generation then return 1 end
redis.call('HDEL', row, 'claimedMs')
for _, one in ipairs(cjson.decode(causes)) do redis.call('HDEL', held, one) end
if nextMs == 'event' then
  if redis.call('HLEN', held) == 0 then
    redis.call('ZREM', due, id)
  else
    -- What has come since is a run of its own.
    redis.call('HSET', row, 'dueMs', tonumber(dueMs) + 1)
    redis.call('ZADD', due, dueMs, id)
  end
  return 1
end
if nextMs ~= '' then
  redis.call('HSET', row, 'dueMs', nextMs)
  redis.call('ZADD', due, alarmMs, id)
  return 1
end
redis.call('HSET', row, 'state', 'done')
redis.call('ZREM', due, id)
redis.call('ZREM', all, id)
redis.call('SREM', ofPerson, id)
redis.call('SREM', ofChat, id)
redis.call('PEXPIRE', row, keptMs)
redis.call('PEXPIRE', log, keptMs)
return 1
