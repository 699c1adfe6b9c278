-- read(KEYS: records): the version, stamp and value of each record, with nils for one that does not exist.
local records = {}
for index, key in ipairs(KEYS) do
  records[index] = call('HMGET', key, 'version', 'stamp', 'value')
end
return {time, life, records}
