-- The approved rules that no worker has written yet. -> {{approval, state, decisions, settledAtMs}...}
--
-- KEYS kept approvalCards approvals said
-- ARGV sid

local rules = {}
for _, id in ipairs(redis.call('ZRANGE', kept, 0, -1)) do
  local asked = approvals .. ':' .. id
  if redis.call('ZSCORE', approvalCards, sid .. '|' .. id) and redis.call('HGET', asked, 'kind') == 'rule' then
    local text, v = redis.call('HGET', asked, 'approval'), redis.call('HMGET', said .. ':' .. id, 'state', 'decisions', 'settledAtMs')
    if v[1] == 'approved' then rules[#rules + 1] = {text, v[1], v[2] or '', v[3] or ''} end
  end
end
return rules
