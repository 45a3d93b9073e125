-- Counts what was spent. Who spends in a period is a member of two sorted sets, by tokens and by billionths of a dollar:
-- they are the counts, and the order of the biggest at once. -> what each account has spent: tokens, money
--
-- KEYS
--   charge       string: it was counted
--   spending...  tokens and money of each account
-- ARGV
--   tokens       of this charge
--   money        of this charge, in billionths of a dollar
--   knownMs      how long a charge is known
--   maxSpenders  of a kind in one period
--   accounts     as a JSON list of {id, expiresAtMs}

local amounts = {tokens, money}
local counts = (tokens ~= '0' or money ~= '0') and redis.call('SET', charge, '1', 'NX', 'PX', knownMs)
local of, spent = cjson.decode(accounts), {}
for at, key in ipairs(spending) do
  local account, amount = of[math.ceil(at / 2)], amounts[(at - 1) % 2 + 1]
  if counts and amount ~= '0' then
    redis.call('ZINCRBY', key, amount, account.id)
    redis.call('PEXPIREAT', key, account.expiresAtMs)
    if redis.call('ZCARD', key) > tonumber(maxSpenders) then redis.call('ZREMRANGEBYRANK', key, 0, 0) end
  end
  spent[at] = redis.call('ZSCORE', key, account.id) or '0'
end
return spent
