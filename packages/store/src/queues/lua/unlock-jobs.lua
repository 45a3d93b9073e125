-- Takes the locks of processes that have ended, so that BullMQ's search for stalled jobs finds their jobs at once, and
-- no others.
--
-- KEYS
--   active        list: ids of jobs that run
--   stalled       set: ids of jobs that are stalled unless they have a lock
--   stalledCheck  string: BullMQ does not search while it is there
-- ARGV
--   queue    what the keys of the queue begin with
--   dead...  ids of the processes
--
-- -> how many jobs have lost their lock

local isDead = {}
for _, id in ipairs(dead) do isDead[id] = true end
local found = {}
for _, job in ipairs(redis.call('LRANGE', active, 0, -1)) do
  local lock = queue .. job .. ':lock'
  local holder = string.match(redis.call('GET', lock) or '', '^(.+):%d+$')
  if holder and isDead[holder] then
    redis.call('DEL', lock)
    found[#found + 1] = job
  end
end
if #found == 0 then return 0 end
redis.call('DEL', stalled, stalledCheck)
for _, job in ipairs(found) do redis.call('SADD', stalled, job) end
return #found
