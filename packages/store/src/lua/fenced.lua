-- Whether another worker has claimed the session since.
--
-- KEYS state
-- ARGV epoch

local function fenced() return redis.call('HGET', state, 'epoch') ~= epoch end
