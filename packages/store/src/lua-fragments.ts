// Parts that the scripts are put together from. A script takes those that its other parts call, too, and
// in this order: `time` before `gate`.

/** The time of the node that runs the script, in epoch ms, one for the whole run; `defineScript` has the offset. */
export const time = `
local ranAtMs
local function exactNow()
  if not ranAtMs then
    local t = redis.call('TIME')
    ranAtMs = t[1] * 1000 + t[2] / 1000 + clockOffsetMs
  end
  return ranAtMs
end
local function now() return math.floor(exactNow()) end
`;

export const gate = `
local function wake(s, dirty, sid)
  redis.call('HSET', s, 'st', 'queued')
  redis.call('ZADD', dirty, now(), sid)
  return redis.call('HINCRBY', s, 'gen', 1)
end
local function head(inbox) return redis.call('LINDEX', inbox, 0) or '' end
local function seqOf(entry) return string.match(entry, '^(%d+):') end
`;

// What only workers write: the last key of every script with this part is the session's state.
export const owned = `
local state = KEYS[#KEYS]
local function fenced(ep) return redis.call('HGET', state, 'ep') ~= ep end
`;

// A turn that waits for people only is set aside when another person in the group has written, so that their turns run.
// All of it is in the session's state: its inbox entry (aside:<seq>), what else belongs to a turn (aside:<seq>:<field>),
// the entries that have come for it since (aside:<seq>:control, one a line), who it is that waits (waits:<person>, its
// number), and the numbers of all that are set aside, oldest first (asides, as ',1,4,'). `waits` is the person whose turn
// waits so at the head of the inbox. While anything is set aside the session is not idle.
export const asides = `
local turnFields = {'turn', 'abs', 'needs', 'try', 'deaths', 'deathsAlone'}
local function asideList() return redis.call('HGET', state, 'asides') or ',' end

-- The turn that a message belongs to, when it is set aside. -> seq | nil
local function asideOf(seq)
  for aside in string.gmatch(asideList(), '%d+') do
    if aside == seq then return aside end
    local joined = redis.call('HGET', state, 'aside:' .. aside .. ':abs')
    if joined and string.find(joined, ',' .. seq .. ',', 1, true) then return aside end
  end
  return nil
end
-- Whether a worker has run the message at the head, or has died of it.
local function hasBegun(first)
  if first == '' then return false end
  local v = redis.call('HMGET', state, 'turn', 'hs', 'try', 'lost')
  return v[1] or (v[2] == seqOf(first) and (tonumber(v[3] or 0) > 0 or v[4]))
end
local function numberOf(turnId) return string.match(turnId, '%-(%d+)$') or '' end
`;

// Who sets turns aside, and brings them back: scripts of workers only.
export const choosing = `
-- Only people in groups wait for each other.
local function personOf(entry)
  local ok, message = pcall(cjson.decode, string.match(entry, '^%d+:(.*)$') or '')
  if not ok or type(message) ~= 'table' or message.chatType ~= 'group' or type(message.sender) ~= 'table' then return nil end
  return message.sender.id
end

-- The oldest message of a person whose turn does not wait; 'waiting' is who waits at the head. -> entry | nil
local function firstFree(inbox, waiting)
  for _, entry in ipairs(redis.call('LRANGE', inbox, waiting and 1 or 0, 199)) do
    local person = personOf(entry)
    if person and person ~= waiting and not redis.call('HGET', state, 'waits:' .. person) then return entry end
  end
  return nil
end

local function bringForward(inbox, entry)
  if head(inbox) == entry then return end
  redis.call('LREM', inbox, 1, entry)
  redis.call('LPUSH', inbox, entry)
end

-- The oldest turn set aside for which something has come. -> seq | nil
local function asideWithNews()
  for seq in string.gmatch(asideList(), '%d+') do
    if redis.call('HGET', state, 'aside:' .. seq .. ':control') then return seq end
  end
  return nil
end

local function setAside(inbox)
  local entry = redis.call('LPOP', inbox)
  local seq, seqs = seqOf(entry), {}
  for other in string.gmatch(asideList() .. seq, '%d+') do table.insert(seqs, tonumber(other)) end
  table.sort(seqs)
  redis.call('HSET', state, 'aside:' .. seq, entry, 'waits:' .. redis.call('HGET', state, 'waits'), seq,
    'asides', ',' .. table.concat(seqs, ',') .. ',')
  for _, field in ipairs(turnFields) do
    local value = redis.call('HGET', state, field)
    if value then redis.call('HSET', state, 'aside:' .. seq .. ':' .. field, value) end
  end
  redis.call('HDEL', state, 'waits', 'lost', unpack(turnFields))
end

-- -> who it is that waits
local function bringBack(inbox, control, seq)
  local entry, news = unpack(redis.call('HMGET', state, 'aside:' .. seq, 'aside:' .. seq .. ':control'))
  local person = personOf(entry)
  redis.call('LPUSH', inbox, entry)
  for line in string.gmatch(news or '', '[^\\n]+') do redis.call('RPUSH', control, line) end
  redis.call('HDEL', state, 'lost', unpack(turnFields))
  redis.call('HSET', state, 'hs', seq)
  for _, field in ipairs(turnFields) do
    local value = redis.call('HGET', state, 'aside:' .. seq .. ':' .. field)
    if value then redis.call('HSET', state, field, value) end
    redis.call('HDEL', state, 'aside:' .. seq .. ':' .. field)
  end
  local rest = string.gsub(asideList(), ',' .. seq .. ',', ',')
  redis.call('HSET', state, 'asides', rest)
  redis.call('HDEL', state, 'aside:' .. seq, 'aside:' .. seq .. ':control', 'waits:' .. (person or ''))
  if rest == ',' then redis.call('HDEL', state, 'asides') end
  return person or ''
end

-- No other turn has anything to do: the oldest one waits at the head again.
local function waitAtHead(s, inbox, control, dirty, sid)
  redis.call('HSET', state, 'waits', bringBack(inbox, control, string.match(asideList(), '%d+')))
  redis.call('HSET', s, 'st', 'suspended')
  redis.call('ZREM', dirty, sid)
end

-- Puts at the head what is to be run now. -> false: everything that there is waits for people
local function choose(s, inbox, control, dirty, sid)
  local waits, first = redis.call('HGET', state, 'waits'), head(inbox)
  local hasNews = redis.call('LLEN', control) > 0
  if not waits and asideList() == ',' then return true end
  if waits then
    if hasNews then return true end
    local back = asideWithNews()
    local free = not back and firstFree(inbox, waits)
    if not back and not free then
      redis.call('HSET', s, 'st', 'suspended')
      redis.call('ZREM', dirty, sid)
      return false
    end
    setAside(inbox)
    if back then bringBack(inbox, control, back) else bringForward(inbox, free) end
    return true
  end
  if hasBegun(first) then return true end
  local free = firstFree(inbox)
  if hasNews and free == first then return true end -- a cancel of the message at the head
  local back = asideWithNews()
  if back then bringBack(inbox, control, back)
  elseif free then bringForward(inbox, free)
  else
    waitAtHead(s, inbox, control, dirty, sid)
    return false
  end
  return true
end
`;

// Cancels and decisions come into a list that others than workers may write to, too. A worker's script moves them
// behind the entries that only workers write; anything else in that list, such as an outcome, is dropped.
export const requests = `${asides}
local function takeRequests(requests, control)
  local entries = redis.call('LRANGE', requests, 0, -1)
  if #entries == 0 then return end
  for _, entry in ipairs(entries) do
    local ok, request = pcall(cjson.decode, entry)
    if ok and type(request) == 'table' and (request.type == 'cancel' or request.type == 'decision') then
      local aside = type(request.turnId) == 'string' and asideOf(numberOf(request.turnId))
      if aside then
        local field = 'aside:' .. aside .. ':control'
        local known = redis.call('HGET', state, field)
        redis.call('HSET', state, field, known and known .. '\\n' .. entry or entry)
      else
        redis.call('RPUSH', control, entry)
      end
    end
  end
  redis.call('DEL', requests)
end
`;

// What is stored may need features, see `Needs` in the protocol: a list as JSON, the first field of an entry.
export const needs = `
local function lackingOf(features, checkpoint, first, control)
  local lacking = {}
  local function look(list)
    for feature in string.gmatch(list or '', '"([^"]*)"') do
      if not string.find(features, ',' .. feature .. ',', 1, true) then table.insert(lacking, feature) end
    end
  end
  look(checkpoint)
  look(string.match(first, '^%d+:{"needs":%[([^%]]*)%]'))
  for _, entry in ipairs(control) do look(string.match(entry, '^{"needs":%[([^%]]*)%]')) end
  return lacking
end
`;

export const rising = `
-- max(previous + 1, server time): monotonic even if the hash was lost or a failover dropped writes
local function above(previous)
  return string.format('%.0f', math.max(tonumber(previous or 0) + 1, exactNow() * 1000))
end
`;

// One stream entry and one publication per batch; the entry's id is the seq of its last event.
export const emit = `
local function emit(s, ev, channel, sid, batch, n)
  if n == 0 then return end
  local last = redis.call('HINCRBY', s, 'es', n)
  redis.call('XADD', ev, 'MAXLEN', '~', 2000, last .. '-0', 'n', n, 'd', batch)
  redis.call('PEXPIRE', ev, 86400000)
  redis.call('PUBLISH', channel, (last - n + 1) .. ':' .. batch)
end
`;

export const appendHistory = `
local function appendHistory(h, from, n)
  if n > 0 then redis.call('RPUSH', h, unpack(ARGV, from, from + n - 1)) end
end
`;

// History stays whole; only what a claim hands out changes.
export const setContext = `${rising}
local function setContext(h, keep, summary)
  if keep == '' then return end
  local start = math.max(0, redis.call('LLEN', h) - tonumber(keep))
  redis.call('HSET', state, 'cs', start, 'hv', above(redis.call('HGET', state, 'hv')))
  if summary == '' then redis.call('HDEL', state, 'sm') else redis.call('HSET', state, 'sm', summary) end
end
`;

// A session that was removed may come back, and cards with ids of its old turns are in chats for ever. So every
// session begins above all numbers that removed ones of its cell ever had: messages, generations and events here,
// those of its history when it is claimed for the first time.
const life = `
local function beginLife(s, floor)
  local f = redis.call('HMGET', floor, 'seq', 'gen', 'es')
  if not f[1] then return end
  redis.call('HSET', s, 'seq', f[1], 'gen', f[2], 'es', f[3])
end
`;

// -> {result, seq, wakeGen, eventSeq, ahead, head or ''}
export const enqueue = `${life}
local function enqueue(s, inbox, dirty, seen, sid, message, seenTtlMs, maxWaiting, more)
  local v = redis.call('HMGET', s, 'st', 'es', 'seq')
  local w = redis.call('HMGET', state, 'waits', 'waits:' .. more.person)
  -- A turn of another person that waits for people only does not come before it.
  local isFree = more.chatType == 'group' and w[1] and w[1] ~= more.person and not w[2]
  local ahead = redis.call('LLEN', inbox) - (isFree and 1 or 0)
  local first = w[2] and redis.call('HGET', state, 'aside:' .. w[2]) or head(inbox)
  if ahead >= tonumber(maxWaiting) then return {'full', 0, 0, '', 0, first} end
  if not v[3] then
    beginLife(s, more.floor)
    redis.call('HSET', s, 'behind', 0)
  end
  if redis.call('HSETNX', more.who, more.person, more.chatType) == 1 then
    redis.call('ZADD', more.people, 0, more.person .. '|' .. sid)
  end
  local seq = redis.call('HINCRBY', s, 'seq', 1)
  redis.call('SET', seen, seq, 'PX', seenTtlMs)
  redis.call('RPUSH', inbox, seq .. ':' .. message)
  if ahead > 0 then redis.call('HSET', s, 'behind', seq) end
  local st = v[1] or 'idle'
  local isWoken = st == 'idle' or (st == 'suspended' and isFree)
  return {'accepted', seq, isWoken and wake(s, dirty, sid) or 0, v[2] or 0, ahead, first}
end
`;

// The id stands first in what JSON.stringify makes of a record; anything else is read in full.
export const recordId = `
local function recordId(record)
  return string.match(record, '^{"v":1,"id":"([^"\\\\]*)"') or cjson.decode(record).id
end
`;

export const outbox = `
local function lease(s, ob, due, sid, token, ms)
  local v = redis.call('HMGET', s, 'ole', 'ort')
  local t = now()
  if tonumber(v[1] or 0) > t or tonumber(v[2] or 0) > t then return '' end
  local record = redis.call('LINDEX', ob, 0)
  if not record then return '' end
  redis.call('HSET', s, 'olt', token, 'ole', t + ms)
  redis.call('ZADD', due, t + ms, sid)
  return record
end
`;

// The audit log: one stream per cell, written in the step it is about. A record is a kind (k), session (s), call
// (c), facts as JSON (f), runner (r), result (o), and the person whose deed it is (u), where the facts name another.
// The last argument of every script with this part is how many records are kept; 0: all.
export const audit = `
local function audit(stream, kind, sid, call, facts, more)
  local most = ARGV[#ARGV]
  local runner, result, person = more.runner or '', more.result or '', more.person or ''
  if most == '0' then
    redis.call('XADD', stream, '*', 'k', kind, 's', sid, 'c', call, 'f', facts, 'r', runner, 'o', result, 'u', person)
  else
    redis.call('XADD', stream, 'MAXLEN', '~', most, '*',
      'k', kind, 's', sid, 'c', call, 'f', facts, 'r', runner, 'o', result, 'u', person)
  end
end
`;

// While a call is open its entry is its state and, after a blank, what the audit log says of it.
export const calls = `
local function openCall(calls, callId)
  local entry = redis.call('HGET', calls, callId)
  if not entry or entry == 'done' then return nil end
  return string.match(entry, '^(%a+) ?(.*)$')
end
`;

// An entry that a runner has handed in is carried over in the step that removes it: the worker that removes it first writes
// what it says, once. What it says of its call has to be what the ledger has; facts of older versions name no runner.
// -> nil carry it over | 'taken' | 'foreign'
export const handedIn = `
local function refusal(stream, entry, facts, claimed)
  if entry == '' then return nil end
  if redis.call('XDEL', stream, entry) == 0 then return 'taken' end
  if not facts or facts == '' then return nil end
  local known, said = cjson.decode(facts), cjson.decode(claimed)
  for name, value in pairs(said) do
    if known[name] ~= nil and known[name] ~= value then return 'foreign' end
  end
  return nil
end
`;
