-- Publishes events of the turn that runs. -> 1 | 0 fenced
--
-- KEYS session events state
-- ARGV
--   epoch
--   channel
--   batch
--   batchSize
--   number     of the batch in its epoch: the one that was published last is not published again; '' without number

-- include fenced
-- include emit

if fenced() then return 0 end
if number ~= '' then
  local mark = epoch .. ':' .. number
  if redis.call('HGET', session, 'lastBatch') == mark then return 1 end
  redis.call('HSET', session, 'lastBatch', mark)
end
emit(batch, tonumber(batchSize))
return 1
