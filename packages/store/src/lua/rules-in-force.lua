-- -> rules as JSON, but for those revoked. Only workers write rules: a decision that a worker has checked becomes one.
-- That a rule is revoked is written beside it, by ingress, too, when a person says so.
--
-- KEYS
--   index    sorted set: ids of rules by the time of their end
--   rules
--   revoked

-- include now

local ids = redis.call('ZRANGEBYSCORE', index, '(' .. string.format('%.0f', now()), '+inf')
if #ids == 0 then return {} end
local found = {}
-- In portions: unpack has a limit.
for from = 1, #ids, 500 do
  local portion = redis.call('HMGET', rules, unpack(ids, from, math.min(from + 499, #ids)))
  local over = redis.call('HMGET', revoked, unpack(ids, from, math.min(from + 499, #ids)))
  for i, rule in ipairs(portion) do if rule and not over[i] then found[#found + 1] = rule end end
end
return found
