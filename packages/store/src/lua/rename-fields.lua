-- Gives the fields of one hash the names of this version. A field that has its new name already stays as it is.
--
-- KEYS hash
-- ARGV
--   names  JSON: old name to new name

local newNames = cjson.decode(names)
-- What belongs to a turn that is set aside is in `aside:<seq>:<field>`.
local function newNameOf(field)
  local place, rest = string.match(field, '^(aside:%d+:)(.+)$')
  if place then return place .. (newNames[rest] or rest) end
  return newNames[field] or (string.gsub(field, '^n:', 'count:'))
end
local all = redis.call('HGETALL', hash)
for i = 1, #all, 2 do
  local field, value = all[i], all[i + 1]
  -- The run that was counted last: <epoch>:<seq>:<the counter's field>.
  if field == 'counted' then redis.call('HSET', hash, field, (string.gsub(value, ':try$', ':tries'))) end
  local new = newNameOf(field)
  if new ~= field then
    redis.call('HSETNX', hash, new, value)
    redis.call('HDEL', hash, field)
  end
end
