-- Names of tools belong to runners: the hash has names, and prefixes that end in `*`. Only workers write it.

local function allOwners(key)
  local out = {}
  local all = redis.call('HGETALL', key)
  for i = 1, #all, 2 do out[all[i]] = all[i + 1] end
  return out
end
-- -> the runner that a tool belongs to, or nil: a name counts before a prefix, a longer prefix before a shorter one
local function ownerOf(owned, tool)
  if owned[tool] then return owned[tool] end
  for length = #tool, 0, -1 do
    local owner = owned[string.sub(tool, 1, length) .. '*']
    if owner then return owner end
  end
end
