-- The memories of an owner. A memory expires by itself; its member of the index is removed when the index is read.
--
-- KEYS
--   memories  sorted set of members by last use
--   memory    what the keys of memories begin with
--   lookUp    the memories as one text

local function keyOf(member) return memory .. ':' .. member end

-- Those that live, of one tenant or of all ('').
local function living(tenant)
  local found = {}
  for _, member in ipairs(redis.call('ZRANGE', memories, 0, -1)) do
    if tenant == '' or string.sub(member, 1, #tenant + 1) == tenant .. '.' then
      local values = redis.call('HMGET', keyOf(member), 'text', 'by', 'atMs', 'usedAtMs', 'uses')
      if values[1] then
        found[#found + 1] = {
          member = member, text = values[1], by = values[2], atMs = values[3], usedAtMs = values[4], uses = values[5],
        }
      else
        redis.call('ZREM', memories, member)
      end
    end
  end
  return found
end

local function drop(member)
  redis.call('DEL', lookUp)
  redis.call('ZREM', memories, member)
  return redis.call('DEL', keyOf(member))
end

-- The index lives as long as the memory that was used last.
local function keep(member, usedAtMs, ttlMs)
  redis.call('ZADD', memories, usedAtMs, member)
  if ttlMs == '0' then
    redis.call('PERSIST', memories)
    redis.call('PERSIST', keyOf(member))
  else
    redis.call('PEXPIRE', memories, ttlMs)
    redis.call('PEXPIRE', keyOf(member), ttlMs)
  end
end
