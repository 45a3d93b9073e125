-- Publishes events of the turn that runs. -> 1 | 0 fenced
--
-- KEYS session events state
-- ARGV
--   epoch
--   channel
--   batch
--   batchSize

-- include fenced
-- include emit

if fenced() then return 0 end
emit(batch, tonumber(batchSize))
return 1
