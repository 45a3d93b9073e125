-- Stores a server of models that operators add, or removes it, and keeps the record of it.
-- -> {'done'} | {'nothing'} there is none to remove | {'moved', revision} another one was changed meanwhile | {'full'}
--
-- KEYS providers audit
-- ARGV
--   name
--   sealed    the server, sealed; empty: it is removed
--   revision  the one that it makes
--   most      how many there may be
--   kind      of the audit record
--   facts     for the audit log, JSON
--   by        the operator
--   channel   on which workers receive the change
--   auditMax

-- include audit

local last = tonumber(redis.call('HGET', providers, 'revision') or '0')
if last ~= tonumber(revision) - 1 then return {'moved', last} end
local field = 'provider:' .. name
local isNew = redis.call('HEXISTS', providers, field) == 0
if sealed == '' then
  if isNew then return {'nothing'} end
  redis.call('HDEL', providers, field, 'refused:' .. name)
else
  if isNew then
    local count = 0
    for _, one in ipairs(redis.call('HKEYS', providers)) do
      if string.sub(one, 1, 9) == 'provider:' then count = count + 1 end
    end
    if count >= tonumber(most) then return {'full'} end
  end
  redis.call('HSET', providers, field, sealed)
  redis.call('HDEL', providers, 'refused:' .. name)
end
redis.call('HSET', providers, 'revision', revision, 'stamp', string.sub(sealed, 1, 43))
record(kind, '', '', facts, {person = by})
redis.call('PUBLISH', channel, revision)
return {'done'}
