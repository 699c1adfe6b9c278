-- What every script begins with: the time, and which life of the server this is.
--
-- Record keys are `{NAMESPACE}:` and the name of the record: hashes with the fields `version` (hexadecimal), `stamp`
-- (microseconds) and `value` (the text as given). No key has a TTL.

-- Before 7.0, a script that asks for the time has to say that its effects are replicated, not the script itself.
if redis.replicate_commands then redis.replicate_commands() end

local call = redis.call

local clock = call('TIME')
local time = clock[1] .. string.sub('00000' .. clock[2], -6) -- as text: Lua prints large numbers as 1.7e+15
local now = tonumber(time)
if now >= 7258118400000000 then
  return redis.error_reply('TENURECLOCK the clock of the server is beyond the year 2200')
end

-- A server chooses a new replication id whenever it starts, with or without its data, and whenever it becomes a
-- primary. It has to be the id of the server that runs this script, so the script asks for it.
local replication = call('INFO', 'replication')
if not string.find(replication, '\nrole:master', 1, true) then
  return redis.error_reply('READONLY it has become a replica')
end
local _, last = string.find(replication, '\nmaster_replid:', 1, true)
if not last then
  return redis.error_reply('TENURELIFE the server does not tell its master_replid')
end
local life = string.sub(replication, last + 1, last + 32)

