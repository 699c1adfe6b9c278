-- read(KEYS: records): the version, stamp and value of each record, with nils for one that does not exist. A key that holds
-- another program's data is a record without a version.
local records = {}
for index, key in ipairs(KEYS) do
  local record = redis.pcall('HMGET', key, 'version', 'stamp', 'value')
  records[index] = record.err and {false, false, 'not a record'} or record
end
return {time, life, records}
