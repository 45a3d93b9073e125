-- The audit log: one stream per cell, written in the step that it is about. A record is a kind (k), session (s), call
-- (c), facts as JSON (f), runner (r), result (o), and the person whose deed it is (u), where the facts name another.
--
-- KEYS audit
-- ARGV
--   auditMax  about how many records are kept; 0: all

local function record(kind, sid, call, facts, more)
  local runner, result, person = more.runner or '', more.result or '', more.person or ''
  if auditMax == '0' then
    redis.call('XADD', audit, '*', 'k', kind, 's', sid, 'c', call, 'f', facts, 'r', runner, 'o', result, 'u', person)
  else
    redis.call('XADD', audit, 'MAXLEN', '~', auditMax, '*',
      'k', kind, 's', sid, 'c', call, 'f', facts, 'r', runner, 'o', result, 'u', person)
  end
end
