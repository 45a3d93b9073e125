-- Reads a grant and its tokens at one moment.
--
-- KEYS
--   grant
--   token  its tokens
-- REPLY
--   row     texts  names and values
--   sealed  text?

return respond {row = redis.call('HGETALL', grant), sealed = redis.call('GET', token) or nil}
