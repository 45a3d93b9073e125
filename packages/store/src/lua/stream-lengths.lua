-- How many entries streams have. All are on one server.
--
-- KEYS streams...
--
-- -> {length...}

local lengths = {}
for at, stream in ipairs(streams) do lengths[at] = redis.call('XLEN', stream) end
return lengths
