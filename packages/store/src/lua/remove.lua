-- Removes everything of a session, with its child sessions, but the ids of its messages, which expire by themselves.
-- -> removed | in_use | changed
--
-- KEYS session inbox control calls history events outbox cards pending kept who highest ended untended dirty due
-- KEYS openCards expiries approvalCards people requests state approvals said files deadlines children endedChildren
-- KEYS childRoots
-- ARGV
--   sid
--   beforeMs  its last turn has ended before; '': whenever
--   length    of its history as far as the caller knows it; '': any
--   busyMs    when one that is in use although it has been silent for so long is asked again
--   stays     'owner': who has written in it stays known, and when it has ended; '': nothing does

-- include now
-- include remove-child

local v = redis.call('HMGET', session, 'state', 'seq', 'generation', 'eventSeq')
local base = redis.call('HGET', state, 'historyBase')
if beforeMs ~= '' then
  local endedAtMs = redis.call('ZSCORE', ended, sid)
  if not endedAtMs or tonumber(endedAtMs) >= tonumber(beforeMs) then return 'changed' end
end
local inUse = (v[1] or 'idle') ~= 'idle' or redis.call('LLEN', inbox) > 0 or redis.call('LLEN', control) > 0
  or redis.call('LLEN', requests) > 0
if beforeMs ~= '' and not inUse then
  inUse = redis.call('LLEN', outbox) > 0 or redis.call('HLEN', cards) > 0 or redis.call('ZCARD', pending) > 0
  -- Checked again later, after the others.
  if inUse then redis.call('ZADD', ended, math.min(now(), tonumber(beforeMs) + tonumber(busyMs)), sid) end
end
if inUse then return 'in_use' end
local inAll = tonumber(base or 0) + redis.call('LLEN', history)
if length ~= '' and tonumber(length) < inAll then return 'changed' end

local f = redis.call('HMGET', highest, 'seq', 'generation', 'eventSeq', 'historyBase')
local function above(at, value) return string.format('%.0f', math.max(tonumber(f[at] or 0), tonumber(value or 0))) end
redis.call('HSET', highest, 'seq', above(1, v[2]), 'generation', above(2, v[3]), 'eventSeq', above(3, v[4]), 'historyBase', above(4, inAll))

if string.find(sid, '~', 1, true) then
  redis.call('HDEL', children, sid, 'steps ' .. sid .. '-1')
  redis.call('ZREM', endedChildren, sid)
else
  for _, child in ipairs(redis.call('HKEYS', children)) do
    if string.sub(child, 1, #sid + 1) == sid .. '~' then removeChild(child) end
  end
  for _, child in ipairs(redis.call('ZRANGE', endedChildren, 0, -1)) do removeChild(child) end
  redis.call('UNLINK', children, endedChildren)
  redis.call('ZREM', childRoots, sid)
end
for _, id in ipairs(redis.call('ZRANGE', kept, 0, -1)) do
  redis.call('UNLINK', approvals .. ':' .. id, said .. ':' .. id)
  redis.call('ZREM', expiries, sid .. '|' .. id)
  redis.call('ZREM', approvalCards, sid .. '|' .. id)
end
for _, reply in ipairs(redis.call('HKEYS', cards)) do redis.call('ZREM', openCards, sid .. '|' .. reply) end
for _, index in ipairs({untended, dirty, due}) do redis.call('ZREM', index, sid) end
redis.call('UNLINK', session, inbox, control, calls, history, events, outbox, cards, pending, kept, requests, state, files)
if stays ~= 'owner' then
  for _, person in ipairs(redis.call('HKEYS', who)) do redis.call('ZREM', people, person .. '|' .. sid) end
  redis.call('ZREM', ended, sid)
  redis.call('UNLINK', who)
end
return 'removed'
