-- The approved rules that no worker has written yet.
--
-- KEYS kept approvalCards approvals said
-- ARGV sid
-- REPLY
--   rules  rows
-- ROW
--   approval     text      JSON
--   state        text
--   decisions    text      JSON objects joined by commas
--   settledAtMs  integer?

local rules = {}
for _, id in ipairs(redis.call('ZRANGE', kept, 0, -1)) do
  local asked = approvals .. ':' .. id
  if redis.call('ZSCORE', approvalCards, sid .. '|' .. id) and redis.call('HGET', asked, 'kind') == 'rule' then
    local text, v = redis.call('HGET', asked, 'approval'), redis.call('HMGET', said .. ':' .. id, 'state', 'decisions', 'settledAtMs')
    if v[1] == 'approved' then rules[#rules + 1] = row {approval = text, state = v[1], decisions = v[2] or '', settledAtMs = v[3]} end
  end
end
return respond {rules = rules}
