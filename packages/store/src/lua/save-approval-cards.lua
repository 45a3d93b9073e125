-- Records the cards of an approval that were written. The holder of an expired lease may still do so until another takes over. -> 1 | 0 not held any more
--
-- KEYS answers approvalCards
-- ARGV
--   member     of approvalCards
--   token
--   cards      JSON
--   retryAtMs  when they are tried again; '': they show what they have to

-- include now

local v = redis.call('HMGET', answers, 'leaseToken', 'changes', 'seenChanges')
if v[1] ~= token then return 0 end
redis.call('HSET', answers, 'cards', cards)
redis.call('HDEL', answers, 'leaseToken', 'leaseUntil', 'seenChanges')
if (v[2] or '0') ~= v[3] then redis.call('ZADD', approvalCards, now(), member)
elseif retryAtMs ~= '' then redis.call('ZADD', approvalCards, retryAtMs, member)
else redis.call('ZREM', approvalCards, member) end
return 1
