-- What has become of processes.
--
-- KEYS
--   keys...  of each process: its last beat, and the note that it has left
-- ARGV
--   channels     what the names of presence channels begin with
--   heartbeatMs  how long a beat is good for
--   sinceMs      beats before this time count as made then: the asker could not reach the server until then
--   ids...       of the processes
--
-- -> for each: 'alive'
--    | 'left': it has said that it ends
--    | 'unknown': nothing is kept of it
--    | 'gone': its connection is closed, or it has no good beat where connections cannot be seen
--    | 'silent': it has no good beat, but its connection stands

-- include presence

local counts, server = listeners(ids), thisServer()
local fates = {}
for at, id in ipairs(ids) do
  local value, left = redis.call('GET', keys[2 * at - 1]), redis.call('EXISTS', keys[2 * at])
  local beat, seenBy = string.match(value or '', '^(%d+) (%w*)$')
  local count = counts[id]
  if left == 1 or not beat then
    fates[at] = left == 1 and 'left' or 'unknown'
  elseif count == 0 and server ~= '' and seenBy == server then
    fates[at] = 'gone'
  else
    local goodFrom = math.max(tonumber(beat), tonumber(sinceMs))
    if seenBy ~= '' and seenBy ~= server then goodFrom = math.max(goodFrom, startedAtMs()) end
    if now() < goodFrom + heartbeatMs then
      fates[at] = 'alive'
    else
      fates[at] = (count or 0) > 0 and 'silent' or 'gone'
    end
  end
end
return fates
