-- Renews the locks of running jobs of BullMQ. One that has run out while its job is active is taken again: Redis could
-- not be reached, and no other worker has the job yet. Gives 1 for each lock that is still ours, otherwise 0.
--
-- KEYS
--   queueKeys...  of each job: its lock, the stalled and the active jobs of its queue
-- ARGV
--   lockMs   how long a lock is good for
--   jobs...  of each job: its id, the token of its lock

local kept = {}
for at = 1, #queueKeys / 3 do
  local lock, stalled, active = queueKeys[3 * at - 2], queueKeys[3 * at - 1], queueKeys[3 * at]
  local id, token = jobs[2 * at - 1], jobs[2 * at]
  local holder = redis.call('GET', lock)
  local isOurs = holder == token
  if isOurs then
    redis.call('PEXPIRE', lock, lockMs)
  elseif not holder and redis.call('LPOS', active, id) then
    redis.call('SET', lock, token, 'PX', lockMs)
    isOurs = true
  end
  if isOurs then redis.call('SREM', stalled, id) end
  kept[at] = isOurs and 1 or 0
end
return kept
