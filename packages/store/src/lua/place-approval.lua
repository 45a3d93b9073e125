-- Records whether the buttons of an approval stand on the card of its reply. Where they do not, it gets a card of its own
-- at once. -> 1 they stand there and nowhere else | 0 it has a card of its own, or is to get one | nil it is settled
--
-- KEYS answers approvalCards
-- ARGV
--   member    of approvalCards
--   isPlaced  1 or 0
--   cards     JSON: the card of the reply

-- include now

local v = redis.call('HMGET', answers, 'state', 'cards', 'leaseToken')
if v[1] and v[1] ~= 'pending' then return false end
if v[3] or (v[2] and v[2] ~= cards) then return 0 end
if isPlaced == '1' then
  redis.call('HSET', answers, 'cards', cards)
  redis.call('ZREM', approvalCards, member)
  return 1
end
redis.call('HDEL', answers, 'cards')
redis.call('ZADD', approvalCards, now(), member)
return 0
