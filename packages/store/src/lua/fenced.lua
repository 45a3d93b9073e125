-- Whether another worker has claimed the session since (the epoch is stale).
--
-- KEYS state
-- ARGV epoch

local function fenced() return redis.call('HGET', state, 'epoch') ~= epoch end
