-- What is stored may need features, see `Needs` in the protocol: a list as JSON, the first field of an entry.

local function lackingOf(features, checkpoint, first, entries)
  local lacking = {}
  local function look(list)
    for feature in string.gmatch(list or '', '"([^"]*)"') do
      if not string.find(features, ',' .. feature .. ',', 1, true) then table.insert(lacking, feature) end
    end
  end
  look(checkpoint)
  look(string.match(first, '^%d+:{"needs":%[([^%]]*)%]'))
  for _, entry in ipairs(entries) do look(string.match(entry, '^{"needs":%[([^%]]*)%]')) end
  return lacking
end
