-- Which processes hold the running jobs of a queue, by the tokens of their locks: `<id of the process>:<number>`.
--
-- KEYS
--   active  list: ids of jobs that run
-- ARGV
--   queue  what the keys of the queue begin with
--   own    id of the process that asks, which is left out
--
-- -> id of each other process

local seen, ids = {[own] = true}, {}
for _, job in ipairs(redis.call('LRANGE', active, 0, -1)) do
  local holder = string.match(redis.call('GET', queue .. job .. ':lock') or '', '^(.+):%d+$')
  if holder and not seen[holder] then
    seen[holder] = true
    ids[#ids + 1] = holder
  end
end
return ids
