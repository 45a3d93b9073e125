-- The connections of processes, as this server sees them. A process subscribes to a shard channel of its own, so the
-- number of listeners is 0 as soon as the kernel has closed its socket.
--
-- ARGV
--   channels  what the names of the channels begin with

-- include now

-- -> number of listeners by id; empty where the server does not tell
local function listeners(ids)
  local counts, names = {}, {}
  for at, id in ipairs(ids) do names[at] = channels .. id end
  if #names == 0 then return counts end
  local reply = redis.pcall('PUBSUB', 'SHARDNUMSUB', unpack(names))
  if type(reply) ~= 'table' or reply.err then return counts end
  for at, id in ipairs(ids) do counts[id] = tonumber(reply[2 * at]) end
  return counts
end

local facts
local function factOf(name)
  if facts == nil then
    facts = redis.pcall('INFO', 'server')
    if type(facts) ~= 'string' then facts = '' end
  end
  return string.match(facts, name .. ':(%w+)')
end

-- Another one after a restart or a failover, when all connections have been closed, also those of the living. Empty
-- where the server does not tell.
local function thisServer() return factOf('run_id') or '' end

local function startedAtMs() return now() - tonumber(factOf('uptime_in_seconds') or 0) * 1000 end
