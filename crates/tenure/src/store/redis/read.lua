-- read(KEYS: records): the version, stamp and value of each record, with nils for one that does not exist. A key that
-- holds another program's data is a record without a version.
local records = {}
for index, key in ipairs(KEYS) do
  local record = redis.pcall('HMGET', key, 'version', 'stamp', 'value')
  if record.err then
    if not string.find(record.err, 'WRONGTYPE', 1, true) then return record end
    record = {false, false, 'not a record'}
  end
  records[index] = record
end
return {time, life, records}
