-- The next job, as BullMQ 6's moveToActive takes it where the queue has no limits and no delayed job is due: gives
-- false, and has changed nothing, where BullMQ's own script is needed. Otherwise gives {fields, id, left, dueMs}:
-- `left` is above 0 if other jobs wait, `dueMs` is when the next delayed job is due or 0. `fields` and `id` are 0 if
-- no job waits. Uses the keys wait, active, prioritized, delayed, meta, marker and priorityCounter, the argument
-- queue, and the keys of the job taken, <queue><id> and <queue><id>:lock, which are in the same slot.
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
    return {0, 0, 0, dueMs}
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
  return {fields, id, left, dueMs}
end
