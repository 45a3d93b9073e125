-- Stores approvals that no turn has asked for.
--
-- ARGV
--   sid
--   maxKept
--   newApprovals
--   auditMax

-- include ask

askAll()
