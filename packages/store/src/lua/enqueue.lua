-- Adds a message to the inbox of its session, and wakes the session if no running turn will read it.
--
-- KEYS session inbox dirty seen highest who people state
-- ARGV
--   sid
--   seenTtlMs   how long the message's id is remembered
--   maxWaiting  more messages than that are refused
--   person      who has written it
--   chatType    p2p or group
-- REPLY
--   result    'accepted'|'asks'|'duplicate'|'full'|'recalled'|'foreign'
--   seq       integer   of the message in its session; 0 unless it is stored
--   wakeGen   integer   generation to wake the session for, or 0
--   ahead     integer   messages that are answered before it
--   eventSeq  integer?  the newest event when it was accepted
--   head      text?     what is answered first, if that is another one; it may be ''

-- include wake
-- include inbox

-- -> the values of a reply. `mayAnswer`: nothing is done while the session has open questions, which the message may answer.
local function enqueue(message, mayAnswer)
  local s = redis.call('HMGET', session, 'state', 'generation', 'eventSeq', 'seq', 'asks')
  if mayAnswer and s[5] then return {result = 'asks', seq = 0, wakeGen = 0, ahead = 0} end
  local st, gen, es, seq = s[1] or 'idle', s[2], s[3], s[4]
  -- Only in groups turns wait for other people, and the session is not idle then.
  local waits, numberOfTheirs
  if chatType == 'group' and st ~= 'idle' then
    waits, numberOfTheirs = unpack(redis.call('HMGET', state, 'waits', 'waits:' .. person))
  end
  -- A session that was removed may come back, and cards with ids of its old turns are in chats. So every session begins
  -- above all numbers that removed ones of its cell ever had: messages, generations and events here, those of its
  -- history when it is claimed for the first time.
  local fields = {}
  if not seq then
    local f = redis.call('HMGET', highest, 'seq', 'generation', 'eventSeq')
    seq, fields = f[1] or 0, {'behind', 0}
    if f[1] then gen, fields = f[2], {'behind', 0, 'generation', f[2], 'eventSeq', f[3]} end
  end
  -- A turn of another person that waits for people only does not come before it.
  local isFree = waits and waits ~= person and not numberOfTheirs
  seq = tonumber(seq) + 1
  local ahead = redis.call('RPUSH', inbox, seq .. ':' .. message) - 1 - (isFree and 1 or 0)
  local first = ''
  if numberOfTheirs then first = redis.call('HGET', state, 'aside:' .. numberOfTheirs)
  elseif ahead > 0 or isFree then first = head() end
  if ahead >= tonumber(maxWaiting) then
    redis.call('RPOP', inbox)
    return {result = 'full', seq = 0, wakeGen = 0, ahead = 0, head = first}
  end
  redis.call('SET', seen, seq, 'PX', seenTtlMs)
  if redis.call('HSETNX', who, person, chatType) == 1 then redis.call('ZADD', people, 0, person .. '|' .. sid) end
  local function set(field, value)
    table.insert(fields, field)
    table.insert(fields, value)
  end
  set('seq', seq)
  if ahead > 0 then set('behind', seq) end
  local woken = 0
  if st == 'idle' or (st == 'suspended' and isFree) then
    woken = tonumber(gen or 0) + 1
    set('state', 'queued')
    set('generation', woken)
    redis.call('ZADD', dirty, now(), sid)
  end
  redis.call('HSET', session, unpack(fields))
  return {result = 'accepted', seq = seq, wakeGen = woken, ahead = ahead, eventSeq = es or 0, head = first}
end
