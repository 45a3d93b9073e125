-- Helpers work in child sessions, in the cell of their root. What concerns a child and its asker at once is one step: the
-- child begins when its call is opened, and its end is the outcome of that call.
--
-- The hash `children` of the root has those that work. What is known of one that has ended is with its session, and its
-- name in `endedChildren`, by the time of its end; the oldest leave by trim-children.lua, and here where there are many.
--
-- KEYS session dirty people deadlines children endedChildren childRoots
-- ARGV sid

-- include now
-- include audit
-- include remove-child

-- So many ended children of a root are kept.
local maxEnded = 500
local rootOf = string.gsub(sid, '~%x+$', '')

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

-- The asker does not wait any more: cancels the child.
local function dropChild(child)
  local v = redis.call('HMGET', keyOf('s', child), 'state', 'generation')
  if not v[1] or v[1] == 'idle' then return end
  redis.call('RPUSH', keyOf('req', child), '{"type":"cancel","reason":"cancelled"}')
  if v[1] == 'suspended' then wakeOther(child, v[2]) end
end

-- The child has ended. Does nothing if it was removed meanwhile.
local function endChild(child, facts)
  redis.call('HDEL', children, child, 'steps ' .. child .. '-1')
  redis.call('HSET', keyOf('s', child), 'facts', facts)
  redis.call('ZADD', endedChildren, now(), child)
  redis.call('ZADD', childRoots, 'NX', now(), rootOf)
  local tooMany = redis.call('ZCARD', endedChildren) - maxEnded
  if tooMany <= 0 then return end
  -- More than one at a time, so that a surplus of older versions shrinks as well.
  for _, old in ipairs(redis.call('ZRANGE', endedChildren, 0, math.min(tooMany, 2) - 1)) do
    removeChild(old)
    redis.call('ZREM', endedChildren, old)
  end
end

-- Facts of the call that waits for this child; nil if it is answered. A later turn may have a call of the same name: it
-- waits for another child.
local function callOf(asker)
  local was, facts = string.match(redis.call('HGET', keyOf('calls', asker.sid), asker.callId) or 'done', '^(%a+) ?(.*)$')
  if was == 'done' then return nil end
  local turnId = string.match(facts, '"turnId":"([^"]+)"')
  if turnId and turnId ~= asker.turnId then return nil end
  return facts
end

-- The child waits for people, or does not any more; `asker` is {sid, turnId, callId, entry}.
local function tellAsker(asker)
  if not callOf(asker) then return end
  redis.call('RPUSH', keyOf('ctl', asker.sid), asker.entry)
  local v = redis.call('HMGET', keyOf('s', asker.sid), 'state', 'generation')
  if v[1] == 'suspended' then wakeOther(asker.sid, v[2]) end
end

-- The child has ended; `asker` is {sid, turnId, callId, entry, result, facts}.
-- -> generation to wake the asker's session for, or 0
local function answerAsker(asker)
  endChild(sid, asker.facts)
  local facts = callOf(asker)
  if not facts then return 0 end
  local calls = keyOf('calls', asker.sid)
  redis.call('ZREM', deadlines, asker.sid .. '|' .. asker.callId)
  redis.call('HSET', calls, asker.callId, 'done')
  redis.call('RPUSH', keyOf('ctl', asker.sid), asker.entry)
  record('call_ended', asker.sid, asker.callId, facts, {result = asker.result})
  local v = redis.call('HMGET', keyOf('s', asker.sid), 'state', 'generation')
  if v[1] == 'suspended' or v[1] == 'idle' then return wakeOther(asker.sid, v[2]) end
  return 0
end
