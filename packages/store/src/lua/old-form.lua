-- A session that is stored in the form of the version before has the field `st`. A worker gives it the form of this
-- version before it does anything else; until then nothing is written, and the caller tries again.

local function oldForm()
  return redis.error_reply('OLDFORM the session is stored in the form of the version before. Start an agent-worker of this version: it takes over what is stored')
end
