-- Writes a file of a session's folder, or takes it away, as long as its call is open: what a replaced worker writes late
-- does not count. -> written | closed the call is answered | changed the file is another one by now | full
--
-- KEYS calls files
-- ARGV
--   callId    of the call that writes
--   path
--   known     SHA-1 of the file as the caller has read it; '' where there was none
--   content   '' takes it away
--   maxFiles
--   maxBytes  of all files together

-- include open-call

local call, facts = openCall(callId)
if not call then return 'closed' end
local present = redis.call('HGET', files, path)
if (present and redis.sha1hex(present) or '') ~= known then return 'changed' end
if content == '' then
  -- A file that was written since is another one: who takes it away again, after a crash, has done so before.
  if call ~= 'started' then redis.call('HDEL', files, path) end
  redis.call('HSET', calls, callId, 'started ' .. facts)
  return 'written'
end
if not present and redis.call('HLEN', files) >= tonumber(maxFiles) then return 'full' end
local bytes = #content
for _, other in ipairs(redis.call('HKEYS', files)) do
  if other ~= path then bytes = bytes + redis.call('HSTRLEN', files, other) end
end
if bytes > tonumber(maxBytes) then return 'full' end
redis.call('HSET', files, path, content)
return 'written'
