-- Removes the finished jobs of a session, or of calls made for a person, and the stream of events, which names them. One
-- script, so that none of the jobs moves from one list to another meanwhile. -> how many of such jobs are active
--
-- KEYS
--   completed  sorted set: ids of jobs that have succeeded
--   failed     sorted set: ids of jobs that have failed
--   events     stream
--   active     list: ids of jobs that run
-- ARGV
--   queue      what the keys of jobs begin with
--   session    whose jobs are meant, by their ids, or ''
--   named      a text in the data of the jobs to erase

local function isMeant(id)
  local begins = session ~= '' and (string.find(id, session .. '-', 1, true) or 0) or 0
  if begins == 1 or (begins == 3 and string.sub(id, 1, 2) == 't-') then return true end
  return string.find(redis.call('HGET', queue .. id, 'data') or '', named, 1, true) ~= nil
end
for _, finished in ipairs({completed, failed}) do
  for _, id in ipairs(redis.call('ZRANGE', finished, 0, -1)) do
    if isMeant(id) then
      redis.call('ZREM', finished, id)
      redis.call('DEL', queue .. id)
    end
  end
end
redis.call('DEL', events)
local running = 0
for _, id in ipairs(redis.call('LRANGE', active, 0, -1)) do
  if isMeant(id) then running = running + 1 end
end
return running
