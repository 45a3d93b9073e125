-- The id of a reply, which stands first in what JSON.stringify makes of it; anything else is read in full.

local function recordId(record)
  return string.match(record, '^{"v":1,"id":"([^"\\]*)"') or cjson.decode(record).id
end
