-- KEYS memories memory off lookUp
-- ARGV tenant
-- REPLY
--   isOff     flag  the person wants nothing remembered
--   memories  rows
-- ROW
--   member    text
--   text      text
--   by        text
--   atMs      integer
--   usedAtMs  integer
--   uses      integer

-- include memories

local rows = {}
for at, one in ipairs(living(tenant)) do rows[at] = row(one) end
return respond {isOff = redis.call('EXISTS', off) == 1, memories = rows}
