-- -> 1 | 0 it has changed since it was read
--
-- KEYS session state
-- ARGV turn sealedTurn summary sealedSummary settings sealedSettings

local owned = {'rg', 'ep', 'hs', 'try', 'own', 'abs', 'hb', 'cs', 'hv'}
local contents, before = {'turn', 'sm', 'set'}, {turn, summary, settings}
local sealed = {sealedTurn, sealedSummary, sealedSettings}
local old = redis.call('HMGET', session, unpack(contents))
for i = 1, 3 do if (old[i] or '') ~= before[i] then return 0 end end
if redis.call('EXISTS', state) == 0 then
  for _, field in ipairs(owned) do
    local value = redis.call('HGET', session, field)
    if value then redis.call('HSET', state, field, value) end
  end
  for i = 1, 3 do if sealed[i] ~= '' then redis.call('HSET', state, contents[i], sealed[i]) end end
end
redis.call('HDEL', session, 'turn', 'sm', 'set', unpack(owned))
return 1
