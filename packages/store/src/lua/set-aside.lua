-- A turn that waits for people only is set aside when another person in the group has written, so that their turns run.
-- All of it is in the session's state: its inbox entry (aside:<seq>), what else belongs to a turn (aside:<seq>:<field>),
-- the entries that have come for it since (aside:<seq>:control, one a line), who it is that waits (waits:<person>, its
-- number), and the numbers of all that are set aside, oldest first (asides, as ',1,4,'). `waits` is the person whose turn
-- waits so at the head of the inbox. While anything is set aside the session is not idle.
--
-- KEYS state inbox

-- include inbox

local turnFields = {'turn', 'absorbed', 'needs', 'failures', 'deaths', 'deathsAlone'}
local turnsRead
-- Read once in a run; `noteTurnsSetAside` says that a script has read or changed them.
local function noteTurnsSetAside(value) turnsRead = value or ',' end
local function turnsSetAside()
  if not turnsRead then noteTurnsSetAside(redis.call('HGET', state, 'asides')) end
  return turnsRead
end

-- The turn that a message belongs to, when it is set aside. -> seq | nil
local function setAsideTurnOf(seq)
  for aside in string.gmatch(turnsSetAside(), '%d+') do
    if aside == seq then return aside end
    local joined = redis.call('HGET', state, 'aside:' .. aside .. ':absorbed')
    if joined and string.find(joined, ',' .. seq .. ',', 1, true) then return aside end
  end
  return nil
end
-- Whether a worker has run the message at the head, or has died of it.
local function hasBegun(first)
  if first == '' then return false end
  local v = redis.call('HMGET', state, 'turn', 'headSeq', 'brokenOff', 'lost')
  local seq = seqOf(first)
  return v[1] or (v[2] == seq and (v[3] == seq or v[4]))
end
local function numberOf(turnId) return string.match(turnId, '%-(%d+)$') or '' end
