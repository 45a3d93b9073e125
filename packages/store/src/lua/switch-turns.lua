-- Sets turns aside and brings them back: scripts of workers only.
--
-- KEYS session state inbox control dirty
-- ARGV sid

-- include set-aside

-- Only in groups turns wait for other people.
local function personOf(entry)
  local ok, message = pcall(cjson.decode, string.match(entry, '^%d+:(.*)$') or '')
  if not ok or type(message) ~= 'table' or message.chatType ~= 'group' or type(message.sender) ~= 'table' then return nil end
  return message.sender.id
end

-- The oldest message of a person whose turn does not wait; `waiting` is who waits at the head. -> entry | nil
local function firstFree(waiting)
  local from, page = waiting and 1 or 0, 50
  while true do
    local entries = redis.call('LRANGE', inbox, from, from + page - 1)
    for _, entry in ipairs(entries) do
      local person = personOf(entry)
      if person and person ~= waiting and not redis.call('HGET', state, 'waits:' .. person) then return entry end
    end
    if #entries < page then return nil end
    from = from + page
  end
end

local function bringForward(entry)
  if head() == entry then return end
  redis.call('LREM', inbox, 1, entry)
  redis.call('LPUSH', inbox, entry)
end

-- The oldest turn set aside that has new entries. -> seq | nil
local function setAsideTurnWithNews()
  for seq in string.gmatch(turnsSetAside(), '%d+') do
    if redis.call('HGET', state, 'aside:' .. seq .. ':control') then return seq end
  end
  return nil
end

local function setAside(waits)
  local entry = redis.call('LPOP', inbox)
  local seq, seqs = seqOf(entry), {}
  for other in string.gmatch(turnsSetAside() .. seq, '%d+') do table.insert(seqs, tonumber(other)) end
  table.sort(seqs)
  local all = ',' .. table.concat(seqs, ',') .. ','
  redis.call('HSET', state, 'aside:' .. seq, entry, 'waits:' .. waits, seq, 'asides', all)
  noteTurnsSetAside(all)
  for _, field in ipairs(turnFields) do
    local value = redis.call('HGET', state, field)
    if value then redis.call('HSET', state, 'aside:' .. seq .. ':' .. field, value) end
  end
  redis.call('HDEL', state, 'waits', 'lost', unpack(turnFields))
end

-- -> who it is that waits
local function bringBack(seq)
  local entry, news = unpack(redis.call('HMGET', state, 'aside:' .. seq, 'aside:' .. seq .. ':control'))
  local person = personOf(entry)
  redis.call('LPUSH', inbox, entry)
  for line in string.gmatch(news or '', '[^\n]+') do redis.call('RPUSH', control, line) end
  redis.call('HDEL', state, 'lost', unpack(turnFields))
  redis.call('HSET', state, 'headSeq', seq)
  for _, field in ipairs(turnFields) do
    local value = redis.call('HGET', state, 'aside:' .. seq .. ':' .. field)
    if value then redis.call('HSET', state, field, value) end
    redis.call('HDEL', state, 'aside:' .. seq .. ':' .. field)
  end
  local rest = string.gsub(turnsSetAside(), ',' .. seq .. ',', ',')
  redis.call('HSET', state, 'asides', rest)
  noteTurnsSetAside(rest)
  redis.call('HDEL', state, 'aside:' .. seq, 'aside:' .. seq .. ':control', 'waits:' .. (person or ''))
  if rest == ',' then redis.call('HDEL', state, 'asides') end
  return person or ''
end

local function suspend()
  redis.call('HSET', session, 'state', 'suspended')
  redis.call('ZREM', dirty, sid)
end

-- If no other turn can run, the oldest one set aside waits at the head again.
local function waitAtHead()
  redis.call('HSET', state, 'waits', bringBack(string.match(turnsSetAside(), '%d+')))
  suspend()
end

-- Brings the turn that runs next to the head; `waits` is the person whose turn waits there, or false.
-- -> whether the head has changed, or nil when all turns wait for people
local function choose(waits)
  if not waits and turnsSetAside() == ',' then return false end
  local first, hasNews = head(), redis.call('LLEN', control) > 0
  if waits then
    if hasNews then return false end
    local back = setAsideTurnWithNews()
    local free = not back and firstFree(waits)
    if not back and not free then
      suspend()
      return nil
    end
    setAside(waits)
    if back then bringBack(back) else bringForward(free) end
    return true
  end
  if hasBegun(first) then return false end
  local free = firstFree()
  if hasNews and free == first then return false end -- a cancel of the message at the head
  local back = setAsideTurnWithNews()
  if back then bringBack(back)
  elseif free then bringForward(free)
  else
    waitAtHead()
    return nil
  end
  return true
end
