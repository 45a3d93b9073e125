-- Tokens have not to be ended at the platform any more. Those of a forgotten grant are erased, unless their place is that
-- of a later one. -> 1
--
-- KEYS
--   grant
--   token    its tokens
--   endings
-- ARGV
--   entry

redis.call('ZREM', endings, entry)
if redis.call('EXISTS', grant) == 0 then redis.call('DEL', token) end
return 1
