-- Reads the state of a session, for operators.
-- -> {state, gen, waiting, messages, unsent, head or '', turn or '', settings or '', messages of the context, epoch,
--    eventSeq, {entry, turn} of each turn set aside, totals or ''}
--
-- KEYS session inbox history outbox state

-- include set-aside

local s, v = redis.call('HMGET', session, 'state', 'generation', 'eventSeq'), redis.call('HMGET', state, 'turn', 'settings', 'contextStart', 'epoch', 'totals')
local waiting, messages = redis.call('LLEN', inbox), redis.call('LLEN', history)
local unsent, setAside = redis.call('LLEN', outbox), {}
for seq in string.gmatch(turnsSetAside(), '%d+') do
  local a = redis.call('HMGET', state, 'aside:' .. seq, 'aside:' .. seq .. ':turn')
  table.insert(setAside, {a[1] or '', a[2] or ''})
end
return {s[1] or 'idle', s[2] or 0, waiting, messages, unsent, head(), v[1] or '', v[2] or '',
  messages - tonumber(v[3] or 0), v[4] or '0', tonumber(s[3] or 0), setAside, v[5] or ''}
