-- Cancels and decisions come into a list that others than workers may write to, too. A worker's script moves them
-- behind the entries that only workers write; anything else in that list, such as an outcome, is dropped.
--
-- KEYS requests control state

-- include set-aside

local function takeRequests()
  local entries = redis.call('LRANGE', requests, 0, -1)
  if #entries == 0 then return end
  for _, entry in ipairs(entries) do
    local ok, request = pcall(cjson.decode, entry)
    if ok and type(request) == 'table' and (request.type == 'cancel' or request.type == 'decision') then
      local aside = type(request.turnId) == 'string' and setAsideTurnOf(numberOf(request.turnId))
      if aside then
        local field = 'aside:' .. aside .. ':control'
        local known = redis.call('HGET', state, field)
        redis.call('HSET', state, field, known and known .. '\n' .. entry or entry)
      else
        redis.call('RPUSH', control, entry)
      end
    end
  end
  redis.call('DEL', requests)
end
