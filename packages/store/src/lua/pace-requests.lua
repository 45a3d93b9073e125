-- Counts a request of a caller who may make so many in a span of time, all at once if they like. One time is kept: when the
-- requests so far would have been made at an even pace ("generic cell rate algorithm"). A refused request
-- does not count.
-- -> 0 | ms until one may pass
--
-- KEYS pace
-- ARGV most spanMs

-- include now

local nowMs, spacing = exactNow(), tonumber(spanMs) / tonumber(most)
local due = math.max(nowMs, tonumber(redis.call('GET', pace) or '0')) + spacing
local wait = due - tonumber(spanMs) - nowMs
if wait > 0 then return math.ceil(wait) end
redis.call('SET', pace, string.format('%.3f', due), 'PX', math.ceil(due - nowMs))
return 0
