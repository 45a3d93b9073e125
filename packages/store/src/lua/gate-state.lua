-- Counts the sessions of a cell by state. A session without a wake-up that waits for calls or people is suspended.
--
-- KEYS dirty deadlines expiries due
-- ARGV
--   sessions    what the keys of sessions begin with,
--   inboxes     those of inboxes,
--   outboxes    and those of outboxes
--   maxMembers  of an index that are looked at
--   maxHeads    messages and replies that are looked at
-- REPLY
--   queued         integer
--   running        integer
--   suspended      integer
--   oldestQueued   integer  epoch ms, 0 when there is none
--   oldestRunning  integer  the same
--   outboxes       integer
--   oldestReply    integer  the same
--   calls          integer
--   approvals      integer

local function older(known, json)
  local at = json and tonumber(string.match(json, '"createdAtMs":(%d+)'))
  return at and (known == 0 or at < known) and at or known
end
local count, oldest, awake = {queued = 0, running = 0}, {queued = 0, running = 0}, {}
for i, sid in ipairs(redis.call('ZRANGE', dirty, 0, maxMembers - 1)) do
  awake[sid] = true
  local st = redis.call('HGET', sessions .. sid, 'state')
  if count[st] then
    count[st] = count[st] + 1
    if i <= tonumber(maxHeads) then oldest[st] = older(oldest[st], redis.call('LINDEX', inboxes .. sid, 0)) end
  end
end
local suspended = 0
for _, index in ipairs({deadlines, expiries}) do
  for _, member in ipairs(redis.call('ZRANGE', index, 0, maxMembers - 1)) do
    local sid = string.match(member, '^([^|]*)|')
    if sid and not awake[sid] then
      awake[sid] = true
      suspended = suspended + 1
    end
  end
end
local reply = 0
for _, sid in ipairs(redis.call('ZRANGE', due, 0, maxHeads - 1)) do
  reply = older(reply, redis.call('LINDEX', outboxes .. sid, 0))
end
return respond {
  queued = count.queued, running = count.running, suspended = suspended, oldestQueued = oldest.queued,
  oldestRunning = oldest.running, outboxes = redis.call('ZCARD', due), oldestReply = reply,
  calls = redis.call('ZCARD', deadlines), approvals = redis.call('ZCARD', expiries),
}
