-- The next job, as BullMQ 6's moveToActive takes it where the queue has no limits and no delayed job is due. Where
-- BullMQ's own script is needed it gives nil, and has changed nothing. Uses the keys wait, active, prioritized, delayed,
-- meta, marker and priorityCounter, the argument queue, and the keys of the job taken, <queue><id> and <queue><id>:lock,
-- which are in the same slot.
--
-- REPLY nil
-- REPLY taken
--   fields  texts    of the job
--   id      text
--   left    flag     other jobs wait
--   dueMs   integer  when the next delayed job is due, or 0
-- REPLY none
--   dueMs   integer

local function take(nowMs, token, lockMs)
  local limits = redis.call('HMGET', meta, 'paused', 'concurrency', 'max')
  if limits[1] or limits[2] or limits[3] then return false end
  local first = redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')
  local dueMs = first[2] and math.floor(first[2] / 0x1000) or 0
  if first[2] and dueMs <= tonumber(nowMs) then return false end
  local id = redis.call('RPOPLPUSH', wait, active)
  if not id then
    -- BullMQ removes the counter with the last prioritized job.
    if redis.call('EXISTS', prioritized, priorityCounter) > 0 then return false end
    return respond('none', {dueMs = dueMs})
  end
  local job = queue .. id
  redis.call('SET', job .. ':lock', token, 'PX', lockMs)
  -- Later fields replace earlier ones.
  local fields, starts = redis.call('HGETALL', job), 1
  for at = 1, #fields, 2 do
    if fields[at] == 'ats' then starts = fields[at + 1] + 1 end
  end
  for _, value in ipairs({'processedOn', nowMs, 'ats', starts}) do fields[#fields + 1] = tostring(value) end
  redis.call('HSET', job, 'processedOn', nowMs, 'ats', starts)
  -- Wakes another worker only if jobs wait; BullMQ's own script does it after every job.
  local left = redis.call('EXISTS', wait, prioritized)
  if left > 0 then
    redis.call('ZADD', marker, 0, '0')
  elseif dueMs > 0 then
    redis.call('ZADD', marker, dueMs, '1')
  end
  return respond('taken', {fields = fields, id = id, left = left > 0, dueMs = dueMs})
end
