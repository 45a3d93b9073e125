-- Adds what one process has counted to buckets of time, unless this batch was added before. A bucket is four keys: its
-- counts, and people by runs, by tokens and by billionths of a dollar.
--
-- KEYS
--   batch       string: it was added
--   buckets...  four of each bucket
-- ARGV
--   knownMs     how long a batch is known
--   maxFields   names in the counts of a bucket
--   maxPeople   in each order of a bucket
--   counts      of each bucket, as a JSON list of {fields, people: three objects, ttlMs}

if not redis.call('SET', batch, '1', 'NX', 'PX', knownMs) then return 0 end
local function whole(number) return string.format('%.0f', number) end
for at, bucket in ipairs(cjson.decode(counts)) do
  local key = buckets[at * 4 - 3]
  local isFull = redis.call('HLEN', key) >= tonumber(maxFields)
  for name, count in pairs(bucket.fields) do
    if not isFull or redis.call('HEXISTS', key, name) == 1 then redis.call('HINCRBY', key, name, whole(count)) end
  end
  redis.call('PEXPIRE', key, whole(bucket.ttlMs))
  for order, people in ipairs(bucket.people) do
    local list = buckets[at * 4 - 3 + order]
    for person, count in pairs(people) do redis.call('ZINCRBY', list, whole(count), person) end
    local over = redis.call('ZCARD', list) - tonumber(maxPeople)
    if over > 0 then redis.call('ZREMRANGEBYRANK', list, 0, over - 1) end
    redis.call('PEXPIRE', list, whole(bucket.ttlMs))
  end
end
return 1
