-- Each runner has a hash of its instances, and a set names the runners. Instances that are gone stay for a while: their
-- tools are offered until then.

-- include now

local awayMs = 600000
local nowMs = now()
local function living(key, forget)
  local out = {}
  local all = redis.call('HGETALL', key)
  for i = 1, #all, 2 do
    local ok, one = pcall(cjson.decode, all[i + 1])
    if not ok or type(one) ~= 'table' or type(one.expiresAtMs) ~= 'number' then one = {expiresAtMs = 0} end
    if one.expiresAtMs > nowMs then out[all[i]] = one
    elseif forget and one.expiresAtMs <= nowMs - awayMs then redis.call('HDEL', key, all[i]) end
  end
  return out
end
local function withTime(text, field, ms)
  local value = '"' .. field .. '":' .. string.format('%.0f', ms)
  return (string.gsub(text, '"' .. field .. '":%d+', function() return value end, 1))
end
