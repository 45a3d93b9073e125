-- The call is over: its places are kept for as long as a window is, and at least for the rest of their span.
--
-- KEYS
--   windows...
-- ARGV
--   ticket
--   flight    ms that the call was to take
--   lengths   ms of each window, as a JSON list

-- include now

for i, lengthMs in ipairs(cjson.decode(lengths)) do
  local kept = tonumber(redis.call('ZSCORE', windows[i], ticket) or '')
  if kept then
    local keeps = math.min(kept, math.max(kept - flight, exactNow() + lengthMs))
    redis.call('ZADD', windows[i], string.format('%.3f', keeps), ticket)
  end
end
return 1
