-- Reads the state of a session, for operators.
--
-- KEYS session inbox history outbox state
-- REPLY
--   state      'idle'|'queued'|'running'|'suspended'
--   gen        integer
--   epoch      text
--   waiting    integer   messages in the inbox
--   messages   integer   of the history
--   inContext  integer   of these
--   unsent     integer   replies
--   eventSeq   integer
--   head       text      entry of the inbox, or ''
--   turn       text?     the checkpoint, sealed
--   settings   text?     sealed
--   totals     text?     JSON
--   setAside   rows      turns that are set aside
-- ROW
--   entry  text?  of the inbox
--   turn   text?  the checkpoint, sealed

-- include set-aside

local s, v = redis.call('HMGET', session, 'state', 'generation', 'eventSeq'), redis.call('HMGET', state, 'turn', 'settings', 'contextStart', 'epoch', 'totals')
local waiting, messages = redis.call('LLEN', inbox), redis.call('LLEN', history)
local unsent, setAside = redis.call('LLEN', outbox), {}
for seq in string.gmatch(turnsSetAside(), '%d+') do
  local a = redis.call('HMGET', state, 'aside:' .. seq, 'aside:' .. seq .. ':turn')
  table.insert(setAside, row {entry = a[1], turn = a[2]})
end
return respond {
  state = s[1] or 'idle', gen = s[2] or 0, epoch = v[4] or '0', waiting = waiting, messages = messages,
  inContext = messages - tonumber(v[3] or 0), unsent = unsent, eventSeq = s[3] or 0, head = head(), turn = v[1],
  settings = v[2], totals = v[5], setAside = setAside,
}
