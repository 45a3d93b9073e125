-- Helpers work in child sessions, in the cell of their root. What concerns a child and its asker at once is one step: the
-- child begins when its call is opened, and its end is the outcome of that call.
--
-- KEYS session dirty people deadlines children
-- ARGV sid

-- include now
-- include audit

-- The key of another session of the same root.
local function keyOf(kind, other) return string.sub(session, 1, -(#sid + 4)) .. ':' .. kind .. ':' .. other end

-- `child` is {sid, message, facts, person, chatType}.
local function openChild(child)
  local key = keyOf('s', child.sid)
  if redis.call('EXISTS', key) == 1 then return end
  redis.call('HSET', key, 'behind', 0, 'seq', 1, 'state', 'queued', 'generation', 1)
  redis.call('RPUSH', keyOf('in', child.sid), '1:' .. child.message)
  redis.call('HSET', keyOf('who', child.sid), child.person, child.chatType)
  redis.call('ZADD', people, 0, child.person .. '|' .. child.sid)
  redis.call('HSET', children, child.sid, child.facts)
  redis.call('ZADD', dirty, now(), child.sid)
end

local function wakeOther(other, gen)
  local new = tonumber(gen or 0) + 1
  redis.call('HSET', keyOf('s', other), 'state', 'queued', 'generation', new)
  redis.call('ZADD', dirty, now(), other)
  return new
end

-- The asker waits no longer: the child is cancelled.
local function dropChild(child)
  local v = redis.call('HMGET', keyOf('s', child), 'state', 'generation')
  if not v[1] or v[1] == 'idle' then return end
  redis.call('RPUSH', keyOf('req', child), '{"type":"cancel","reason":"cancelled"}')
  if v[1] == 'suspended' then wakeOther(child, v[2]) end
end

-- The child has ended; `asker` is {sid, callId, entry, result, facts}. -> generation to wake the asker's session for, or 0
local function answerAsker(asker)
  redis.call('HSET', children, sid, asker.facts)
  local calls = keyOf('calls', asker.sid)
  local was, facts = string.match(redis.call('HGET', calls, asker.callId) or 'done', '^(%a+) ?(.*)$')
  if was == 'done' then return 0 end
  redis.call('ZREM', deadlines, asker.sid .. '|' .. asker.callId)
  redis.call('HSET', calls, asker.callId, 'done')
  redis.call('RPUSH', keyOf('ctl', asker.sid), asker.entry)
  record('call_ended', asker.sid, asker.callId, facts, {result = asker.result})
  local v = redis.call('HMGET', keyOf('s', asker.sid), 'state', 'generation')
  if v[1] == 'suspended' or v[1] == 'idle' then return wakeOther(asker.sid, v[2]) end
  return 0
end
