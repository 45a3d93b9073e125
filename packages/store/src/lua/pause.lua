-- Pauses an agent or a tool, or lets it work again, and keeps the record of it.
-- -> 1 done | 0 it was so before | -1 too many are paused
--
-- KEYS pauses audit
-- ARGV
--   field     what is paused
--   kind      of the audit record
--   isPaused  1, or 0 to let it work again
--   by        the operator
--   most      how many may be paused
--   facts     for the audit log, JSON
--   channel   on which workers receive the change
--   auditMax

-- include now
-- include audit

if isPaused == '1' then
  if redis.call('HEXISTS', pauses, field) == 1 then return 0 end
  if redis.call('HLEN', pauses) >= tonumber(most) then return -1 end
  local sinceMs = string.format('%.0f', now())
  redis.call('HSET', pauses, field, '{"by":' .. cjson.encode(by) .. ',"sinceMs":' .. sinceMs .. '}')
elseif redis.call('HDEL', pauses, field) == 0 then
  return 0
end
record(kind, '', '', facts, {person = by})
redis.call('PUBLISH', channel, field)
return 1
