-- The cards of an approval have something else to show, or its person wants another link. -> 1 | 0 it is settled, or not known
--
-- ARGV
--   sid
--   id
--   isWanted  '1': another link
--   auditMax

-- include approvals

local asked, answered = approvalOf(id)
if not redis.call('ZSCORE', pending, id) then return 0 end
if isWanted == '1' then redis.call('HSET', answered, 'againAtMs', now()) end
changeCards(id)
redis.call('PEXPIREAT', answered, math.max(tonumber(redis.call('HGET', asked, 'expiresAtMs')), now()) + weekMs)
return 1
