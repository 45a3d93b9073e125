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
    local untilMs = 0
    if ok and type(one) == 'table' and type(one.expiresAtMs) == 'number' then
      untilMs = math.min(one.expiresAtMs, type(one.goneAtMs) == 'number' and one.goneAtMs or math.huge)
    end
    if untilMs > nowMs then out[all[i]] = one
    elseif forget and untilMs <= nowMs - awayMs then redis.call('HDEL', key, all[i]) end
  end
  return out
end
