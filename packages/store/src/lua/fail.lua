-- Counts a run of the head message that its own code has ended, and gives the session back under the same generation.
--
-- KEYS session dirty state
-- ARGV
--   sid
--   epoch
--   way    how it has failed, without anything of the conversation
--
-- -> 1 | 0: another worker has it, or it was given back already

-- include now
-- include fenced

if fenced() or redis.call('HGET', session, 'state') ~= 'running' then return 0 end
local v = redis.call('HMGET', state, 'headSeq', 'failures')
local failures = v[2] and v[2] ~= '' and cjson.decode(v[2]) or {}
failures[way] = (failures[way] or 0) + 1
redis.call('HSET', state, 'failures', cjson.encode(failures), 'brokenOff', v[1] or '0')
redis.call('HSET', session, 'state', 'queued')
redis.call('ZADD', dirty, now(), sid)
return 1
