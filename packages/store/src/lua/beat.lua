-- Says that a process lives, and looks at the others of its group.
--
-- KEYS
--   alive  string: `<time of the last beat> <server that saw the connection, or empty>`
--   group  sorted set: processes by their last beat
-- ARGV
--   id           of the process
--   channels     what the names of presence channels begin with
--   keptMs       how long the last beat is remembered
--   heartbeatMs  how long a beat is good for
--   reportedMs   others whose last beat is older than this are left out
--   joins        '1': others of the group may look at it
--
-- -> {1 if the connection of this process was seen, id of each other process that may have ended...}

-- include presence

local server = thisServer()
local seen = (listeners({id})[id] or 0) > 0
redis.call('SET', alive, string.format('%.0f %s', now(), seen and server or ''), 'PX', keptMs)
if joins == '1' then redis.call('ZADD', group, now(), id) end
local found = redis.call('ZRANGEBYSCORE', group, now() - reportedMs, '+inf', 'WITHSCORES')
local ids, beats = {}, {}
for at = 1, #found, 2 do
  if found[at] ~= id then
    ids[#ids + 1] = found[at]
    beats[found[at]] = tonumber(found[at + 1])
  end
end
local counts = listeners(ids)
local ended = {seen and 1 or 0}
for _, other in ipairs(ids) do
  if (seen and counts[other] == 0) or beats[other] <= now() - heartbeatMs then ended[#ended + 1] = other end
end
return ended
