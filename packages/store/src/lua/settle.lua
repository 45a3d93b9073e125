-- Ends an approval without an answer. -> nil unknown | answer: settled | closed
--
-- ARGV
--   sid
--   id
--   result    expired or undeliverable
--   auditMax

-- include approval-outcome

if not text then return false end
local over = closed()
if over then return over end
if result == 'expired' and not isExpired then return answer('closed') end
return answer('settled', settle(result))
