-- An entry that a runner has handed in is carried over in the step that removes it: the worker that removes it first
-- writes what it says, once. What it says of its call has to be what the ledger has; facts of older versions name no runner.
--
-- KEYS
--   handoff        stream: what the runner has handed in
-- ARGV
--   handoffEntry   id of the entry; '': the worker itself says so
--   handoffClaims  what it says of its call, JSON

-- -> nil carry it over | 'taken' | 'foreign'
local function refusal(facts)
  if handoffEntry == '' then return nil end
  if redis.call('XDEL', handoff, handoffEntry) == 0 then return 'taken' end
  if not facts or facts == '' then return nil end
  local known, said = cjson.decode(facts), cjson.decode(handoffClaims)
  for name, value in pairs(said) do
    if known[name] ~= nil and known[name] ~= value then return 'foreign' end
  end
  return nil
end
