-- Stores the next version of an agent and keeps the record of it.
-- -> {'done'} | {'stale'} not the next one | {'moved', revision} another agent was changed meanwhile | {'full'}
--
-- KEYS versions audit
-- ARGV
--   agent
--   number     of this version
--   revision   the one that it makes
--   sealed     the version, sealed
--   most       versions that an agent has
--   mostOfAll  how many there may be
--   facts      for the audit log, JSON
--   by         the operator
--   channel    on which workers receive the change
--   auditMax

-- include audit

local function numberAt(field) return tonumber(redis.call('HGET', versions, field) or '0') end

if numberAt('head:' .. agent) ~= tonumber(number) - 1 then return {'stale'} end
local last = numberAt('revision')
if last ~= tonumber(revision) - 1 then return {'moved', last} end
-- An agent has at most three fields of each version, and its head.
if redis.call('HLEN', versions) >= tonumber(mostOfAll) then return {'full'} end
local oldest = tonumber(number) - tonumber(most)
redis.call('HDEL', versions, 'version:' .. agent .. ':' .. oldest, 'refused:' .. agent .. ':' .. oldest)
redis.call('HSET', versions, 'revision', revision, 'stamp', string.sub(sealed, 1, 43), 'head:' .. agent, number, 'version:' .. agent .. ':' .. number, sealed)
record('agent_changed', '', '', facts, {person = by})
redis.call('PUBLISH', channel, revision)
return {'done'}
