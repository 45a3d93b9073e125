-- Marks a rule as revoked and keeps it, so that adding it again has no effect. -> nil not in force | the rule as it was
--
-- KEYS rules ofChat audit revoked
-- ARGV
--   id
--   by        who revokes it, JSON
--   facts     for the audit log, JSON
--   person    whose deed it is
--   auditMax

-- include now
-- include audit

local expiresAtMs = redis.call('ZSCORE', ofChat, id)
if not expiresAtMs or tonumber(expiresAtMs) <= now() then return false end
local rule = redis.call('HGET', rules, id)
local revocation = '{"by":' .. by .. ',"atMs":' .. string.format('%.0f', now()) .. '}'
if redis.call('HSETNX', revoked, id, revocation) == 0 then return false end
record('rule_revoked', '', '', facts, {person = person})
return rule
