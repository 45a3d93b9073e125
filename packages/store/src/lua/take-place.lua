-- Takes a place in every window of a platform's rate limits, or names the bucket that has none and the ms until it may
-- have one. Times are ms of the server's clock with a fraction: there is one clock for all processes. A window is a
-- sorted set of tickets, each with the time until which it keeps its place, so it holds at most as many members as the
-- limit. Scores are written with three digits: Lua would print a time of today with one.
-- -> {0, 0} | {number of the bucket, ms}
--
-- KEYS
--   buckets...  of each bucket its hash, its second, its minute
-- ARGV
--   ticket
--   flight      ms that the call takes
--   limits      JSON: of each bucket {limit (0: none), usable, span, spaced from} of its second and of its minute

-- include now

local nowMs, flightMs = exactNow(), tonumber(flight)
local windows, worst, longest = {}, 0, 0
for bucket, limitsOfBucket in ipairs(cjson.decode(limits)) do
  local hash = buckets[(bucket - 1) * 3 + 1]
  local stored = redis.call('HMGET', hash, 'pausedUntil', 'ceilingUntil', 'ceilingSecond', 'ceilingMinute', 'lastMinute')
  local wait = tonumber(stored[1] or '0') - nowMs
  if wait > longest then worst, longest = bucket, wait end
  for which, of in ipairs(limitsOfBucket) do
    local limit, usable, span, spacedFrom = unpack(of)
    if limit > 0 then
      local key = buckets[(bucket - 1) * 3 + 1 + which]
      local ceiling = tonumber(stored[2 + which] or '')
      if ceiling and ceiling < limit and tonumber(stored[2] or '0') > nowMs then
        usable = math.max(1, ceiling - (limit - usable))
      end
      redis.call('ZREMRANGEBYSCORE', key, '-inf', string.format('%.3f', nowMs))
      local count = redis.call('ZCARD', key)
      wait = 0
      if count >= usable then
        local place = redis.call('ZRANGE', key, count - usable, count - usable, 'WITHSCORES')
        wait = tonumber(place[2]) - nowMs
        -- A call that is under way most likely ends soon.
        if wait > span then wait = math.max(10, wait - flightMs) end
      elseif spacedFrom > 0 and count >= spacedFrom then
        local first = tonumber(redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]) - nowMs
        wait = tonumber(stored[5] or '0') + math.min(span, first) / (usable - count) - nowMs
      end
      if wait > longest then worst, longest = bucket, wait end
      windows[#windows + 1] = {key = key, span = span, hash = hash, isMinute = which == 2}
    end
  end
end
if worst > 0 then return {worst, math.ceil(longest)} end
for _, window in ipairs(windows) do
  local keeps = window.span + flightMs
  redis.call('ZADD', window.key, string.format('%.3f', nowMs + keeps), ticket)
  redis.call('PEXPIRE', window.key, math.ceil(keeps) + 1)
  if window.isMinute then
    redis.call('HSET', window.hash, 'lastMinute', string.format('%.3f', nowMs))
    if redis.call('PTTL', window.hash) < window.span then redis.call('PEXPIRE', window.hash, math.ceil(window.span)) end
  end
end
return {0, 0}
