-- KEYS approval answers

if redis.call('EXISTS', answers) == 1 then return end
local asked = {a = 1, kind = 1, turn = 1, call = 1, exp = 1, need = 1, hash = 1, hc = 1, f = 1}
local all = redis.call('HGETALL', approval)
for i = 1, #all, 2 do
  if not asked[all[i]] then
    redis.call('HSET', answers, all[i], all[i + 1])
    redis.call('HDEL', approval, all[i])
  end
end
local ttlMs = redis.call('PTTL', approval)
if ttlMs > 0 then redis.call('PEXPIRE', answers, ttlMs) end
