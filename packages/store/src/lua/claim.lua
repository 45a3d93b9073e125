-- A worker takes the session.
-- -> nil | {'needs', feature...} | {'owner', owner}: call again with what became of that worker | {'alone'} refused
-- | {'claimed', epoch, turn, head, tries, deaths, deathsAlone, contextVersion, from, context from there on, control,
--    settings, summary, whether turns are set aside, whether the head may have waited, totals,
--    whether a run of the head ended before this claim}
--
-- KEYS session inbox control history dirty highest requests state
-- ARGV
--   sid
--   gen           the generation that was woken
--   owner         this worker
--   knownVersion  what it has read of the context: the version,
--   knownLength   how many messages,
--   knownLast     and the SHA-1 of the last one
--   judgedOwner   the worker that it has asked about; '*': every other one is dead
--   judgedDead    '1': that one is dead
--   alone         '1': it runs nothing else beside it
--   features      that it has, as ',one,two,'
--   deathsTogether  so many deaths beside others, and a session is run alone

-- include rising
-- include requests
-- include switch-turns
-- include needs

local s = redis.call('HMGET', session, 'state', 'behind')
local st, behind = s[1] or 'idle', s[2]
if st == 'idle' then return false end
local fields = {'epoch', 'runningGeneration', 'turn', 'headSeq', 'tries', 'contextVersion', 'contextStart', 'summary', 'settings', 'needs', 'owner', 'lost', 'deaths', 'deathsAlone',
  'alone', 'waits', 'asides', 'totals', 'excused'}
local v = {}
local function readState()
  for at, value in ipairs(redis.call('HMGET', state, unpack(fields))) do v[fields[at]] = value end
  noteTurnsSetAside(v.asides)
end
readState()
-- A queued session takes any wake-up; one that runs only that of its generation, which its job repeats.
if st ~= 'queued' and v.runningGeneration ~= gen then return false end
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
if #lacking > 0 then return {'needs', unpack(lacking)} end
local tries, deaths, deathsAlone = 0, 0, 0
if v.headSeq == seq then
  tries, deaths, deathsAlone = tonumber(v.tries or 0), tonumber(v.deaths or 0), tonumber(v.deathsAlone or 0)
  local lastOwner = st == 'running' and v.owner or st == 'queued' and v.lost
  if lastOwner then
    local isKnown = judgedOwner == lastOwner or judgedOwner == '*' or lastOwner == owner
    if not isKnown then return {'owner', lastOwner} end
    local countedAs = 'tries'
    if lastOwner ~= owner and judgedDead == '1' then countedAs = v.alone == '1' and 'deathsAlone' or 'deaths' end
    tries = tries + 1
    if countedAs == 'deathsAlone' then deathsAlone = deathsAlone + 1 end
    if countedAs == 'deaths' then deaths = deaths + 1 end
    redis.call('HSET', state, 'counted', (v.epoch or '') .. ':' .. seq .. ':' .. countedAs)
  end
end
if v.lost or v.waits then redis.call('HDEL', state, 'lost', 'waits') end
local counters = {'headSeq', seq, 'tries', tries, 'deaths', deaths, 'deathsAlone', deathsAlone}
if deaths >= tonumber(deathsTogether) and alone ~= '1' then
  redis.call('HSET', state, unpack(counters))
  redis.call('HSET', session, 'state', 'queued')
  return {'alone'}
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
return {'claimed', epoch, v.turn or '', first, tries, deaths, deathsAlone, version, from, tail, entries, v.settings or '',
  from == 0 and summary or '', turnsSetAside() ~= ',' and 1 or 0,
  (not behind or tonumber(seq) <= tonumber(behind)) and 1 or 0, v.totals or '',
  (tries > 0 or string.match(v.excused or '', '^%d+') == seq) and 1 or 0}
