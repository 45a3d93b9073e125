// Parts that the scripts are put together from. A script takes those that its other parts call, too, and
// in this order: `time` before `gate`.

export const time = `
local function now() local t = redis.call('TIME'); return t[1] * 1000 + math.floor(t[2] / 1000) end
`;

export const gate = `
local function wake(s, dirty, sid)
  redis.call('HSET', s, 'st', 'queued')
  redis.call('ZADD', dirty, now(), sid)
  return redis.call('HINCRBY', s, 'gen', 1)
end
local function fenced(s, ep) return redis.call('HGET', s, 'ep') ~= ep end
local function head(inbox) return redis.call('LINDEX', inbox, 0) or '' end
local function seqOf(entry) return string.match(entry, '^(%d+):') end
`;

export const rising = `
-- max(previous + 1, server time): monotonic even if the hash was lost or a failover dropped writes
local function above(previous)
  local t = redis.call('TIME')
  return string.format('%.0f', math.max(tonumber(previous or 0) + 1, t[1] * 1000000 + t[2]))
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
local function setContext(s, h, keep, summary)
  if keep == '' then return end
  local start = math.max(0, redis.call('LLEN', h) - tonumber(keep))
  redis.call('HSET', s, 'cs', start, 'hv', above(redis.call('HGET', s, 'hv')))
  if summary == '' then redis.call('HDEL', s, 'sm') else redis.call('HSET', s, 'sm', summary) end
end
`;

// A session that was removed may come back, and cards with ids of its old turns are in chats for ever. So every
// session begins above all numbers that removed ones of its cell ever had: messages, generations, events, history.
const life = `
local function beginLife(s, floor)
  local f = redis.call('HMGET', floor, 'seq', 'gen', 'es', 'hb')
  if not f[1] then return end
  redis.call('HSET', s, 'seq', f[1], 'gen', f[2], 'es', f[3], 'hb', f[4], 'hv', above(nil))
end
`;

// -> {result, seq, wakeGen, eventSeq, ahead, head or ''}
export const enqueue = `${rising}${life}
local function enqueue(s, inbox, dirty, seen, sid, message, seenTtlMs, maxWaiting, more)
  local ahead, first = redis.call('LLEN', inbox), head(inbox)
  if ahead >= tonumber(maxWaiting) then return {'full', 0, 0, '', 0, first} end
  if redis.call('HEXISTS', s, 'seq') == 0 then beginLife(s, more.floor) end
  if redis.call('HSETNX', more.who, more.person, more.chatType) == 1 then
    redis.call('ZADD', more.people, 0, more.person .. '|' .. sid)
  end
  local v = redis.call('HMGET', s, 'st', 'es')
  local seq = redis.call('HINCRBY', s, 'seq', 1)
  redis.call('SET', seen, seq, 'PX', seenTtlMs)
  redis.call('RPUSH', inbox, seq .. ':' .. message)
  local gen = (v[1] or 'idle') == 'idle' and wake(s, dirty, sid) or 0
  return {'accepted', seq, gen, v[2] or 0, ahead, first}
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
