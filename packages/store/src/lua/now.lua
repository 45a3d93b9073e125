-- The time of the node that runs the script, in epoch ms, one for the whole run.

local ranAtMs
local function exactNow()
  if not ranAtMs then
    local t = redis.call('TIME')
    ranAtMs = t[1] * 1000 + t[2] / 1000 + clockOffsetMs
  end
  return ranAtMs
end
local function now() return math.floor(exactNow()) end
