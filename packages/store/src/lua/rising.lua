-- max(previous + 1, server time): monotonic even if the hash was lost or a failover dropped writes.

-- include now

local function above(previous)
  return string.format('%.0f', math.max(tonumber(previous or 0) + 1, exactNow() * 1000))
end
