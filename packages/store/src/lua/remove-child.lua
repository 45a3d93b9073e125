-- Removes all of a child session but what its root knows of it. A helper that still works is fenced by that: its session
-- has no epoch any more.
--
-- KEYS session dirty people deadlines expiries approvalCards ended untended
-- ARGV sid

-- The key of another session of the same root.
local function keyOf(kind, other) return string.sub(session, 1, -(#sid + 4)) .. ':' .. kind .. ':' .. other end

local function removeChild(child)
  for _, id in ipairs(redis.call('ZRANGE', keyOf('approvals', child), 0, -1)) do
    redis.call('UNLINK', keyOf('approval', child) .. ':' .. id, keyOf('said', child) .. ':' .. id)
    redis.call('ZREM', expiries, child .. '|' .. id)
    redis.call('ZREM', approvalCards, child .. '|' .. id)
  end
  for _, call in ipairs(redis.call('HKEYS', keyOf('calls', child))) do redis.call('ZREM', deadlines, child .. '|' .. call) end
  for _, person in ipairs(redis.call('HKEYS', keyOf('who', child))) do redis.call('ZREM', people, person .. '|' .. child) end
  redis.call('ZREM', deadlines, child .. '|')
  for _, index in ipairs({dirty, ended, untended}) do redis.call('ZREM', index, child) end
  local gone = {}
  for _, kind in ipairs({'s', 'in', 'ctl', 'calls', 'h', 'ev', 'ob', 'cards', 'pending', 'approvals', 'who', 'req', 'state', 'files'}) do
    table.insert(gone, keyOf(kind, child))
  end
  redis.call('UNLINK', unpack(gone))
end
