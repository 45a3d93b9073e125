-- The inbox: entries `<number>:<message>`, that of the turn that runs first.
--
-- KEYS inbox

local function head() return redis.call('LINDEX', inbox, 0) or '' end
local function seqOf(entry) return string.match(entry, '^(%d+):') end
