-- A worker takes the session.
-- KEYS session inbox control history dirty highest requests state
-- ARGV
--   sid
--   gen           the generation that was woken
--   owner         this worker
--   knownVersion  what it has read of the context: the version,
--   knownLength   how many messages,
--   knownLast     and the SHA-1 of the last one
--   judgedOwner   the worker that it has asked about; '*': every other one has died
--   judgedFate    what has become of it, such as 'died'
--   alone         '1': it runs nothing else beside it
--   isHeld        '1': a run of the session is under way in this process
--   features      that it has, as ',one,two,'
--   deathsTogether  so many deaths beside others, and a session is run alone
-- REPLY nil
-- REPLY needs
--   features  texts  that it has to have
-- REPLY owner
--   owner  text  call again with what became of that worker
-- REPLY alone
-- REPLY held
-- REPLY claimed
--   epoch           text
--   turn            text?     the checkpoint, sealed
--   head            text      entry of the inbox, or ''
--   failures        text      JSON, or ''
--   deaths          integer
--   deathsAlone     integer
--   contextVersion  text
--   from            integer   how many messages that the caller knows come before the context
--   context         texts     messages from there on
--   control         texts
--   settings        text?     sealed
--   summary         text?     sealed; absent where the caller knows it
--   othersWait      flag      turns are set aside
--   mayHaveWaited   flag      the head
--   totals          text?     JSON
--   brokenOff       flag      a run of the head was broken off before this claim

-- include rising
-- include requests
-- include switch-turns
-- include needs

local s = redis.call('HMGET', session, 'state', 'behind')
local st, behind = s[1] or 'idle', s[2]
if st == 'idle' then return false end
local fields = {'epoch', 'runningGeneration', 'turn', 'headSeq', 'failures', 'contextVersion', 'contextStart',
  'summary', 'settings', 'needs', 'owner', 'lost', 'deaths', 'deathsAlone', 'alone', 'waits', 'asides', 'totals', 'brokenOff'}
local v = {}
local function readState()
  for at, value in ipairs(redis.call('HMGET', state, unpack(fields))) do v[fields[at]] = value end
  noteTurnsSetAside(v.asides)
end
readState()
-- A queued session takes any wake-up; one that runs only that of its generation, which its job repeats.
if st ~= 'queued' and v.runningGeneration ~= gen then return false end
-- What has become of the worker that had the session last and has not given it back.
local lastOwner = st == 'running' and v.owner or st == 'queued' and v.lost
local fate
if st == 'running' and lastOwner == owner and isHeld == '1' then return respond('held') end
if lastOwner and lastOwner ~= owner then
  if judgedOwner ~= lastOwner and judgedOwner ~= '*' then return respond('owner', {owner = lastOwner}) end
  fate = judgedFate
  if fate == 'alive' and st == 'running' then return respond('held') end
end
-- First, since it needs memory: a full Redis refuses the claim, and not only what is written after a model was asked.
redis.call('ZADD', dirty, now(), sid)
takeRequests()
if st == 'queued' then
  local hasChanged = choose(v.waits)
  if hasChanged == nil then return false end
  if hasChanged then readState() end
end
-- Its first claim: what is counted in its history begins above what removed sessions of its cell had.
local base = not v.epoch and redis.call('HGET', highest, 'historyBase')
if base then
  v.contextVersion = above(nil)
  redis.call('HSET', state, 'historyBase', base, 'contextVersion', v.contextVersion)
end
local first = head()
local seq = seqOf(first) or '0'
local entries = redis.call('LRANGE', control, 0, -1)
local lacking = lackingOf(features, v.needs, first, entries)
if #lacking > 0 then return respond('needs', {features = lacking}) end
local failures, deaths, deathsAlone = '', 0, 0
if v.headSeq == seq then
  failures, deaths, deathsAlone = v.failures or '', tonumber(v.deaths or 0), tonumber(v.deathsAlone or 0)
  -- A try is counted only where the process is known to have died with it.
  if fate == 'died' then
    if v.alone == '1' then deathsAlone = deathsAlone + 1 else deaths = deaths + 1 end
  end
end
local brokenOff = lastOwner or v.brokenOff == seq
if lastOwner and v.brokenOff ~= seq then redis.call('HSET', state, 'brokenOff', seq) end
if v.lost or v.waits then redis.call('HDEL', state, 'lost', 'waits') end
local counters = {'headSeq', seq, 'failures', failures, 'deaths', deaths, 'deathsAlone', deathsAlone}
if deaths >= tonumber(deathsTogether) and alone ~= '1' then
  redis.call('HSET', state, unpack(counters))
  redis.call('HSET', session, 'state', 'queued')
  return respond('alone')
end
local epoch = above(v.epoch)
if st ~= 'running' then redis.call('HSET', session, 'state', 'running') end
redis.call('HSET', state, 'runningGeneration', gen, 'owner', owner, 'epoch', epoch, 'alone', alone, unpack(counters))
-- The context counts as one list: the summary, if there is one, then history from cs on.
local version, start, summary = v.contextVersion or '0', tonumber(v.contextStart or 0), v.summary
local from = version == knownVersion and tonumber(knownLength) or 0
local skipped = (summary and from > 0) and from - 1 or from
-- A failover may have lost the end of what the caller knows, and others may have written since.
local tail
if skipped > 0 then
  tail = redis.call('LRANGE', history, start + skipped - 1, -1)
  local last = table.remove(tail, 1)
  if not last or redis.sha1hex(last) ~= knownLast then from, skipped, tail = 0, 0, nil end
end
tail = tail or redis.call('LRANGE', history, start + skipped, -1)
return respond('claimed', {
  epoch = epoch, turn = v.turn, head = first, failures = failures, deaths = deaths, deathsAlone = deathsAlone,
  contextVersion = version, from = from, context = tail, control = entries, settings = v.settings,
  summary = from == 0 and summary, othersWait = turnsSetAside() ~= ',',
  mayHaveWaited = not behind or tonumber(seq) <= tonumber(behind), totals = v.totals, brokenOff = brokenOff,
})
