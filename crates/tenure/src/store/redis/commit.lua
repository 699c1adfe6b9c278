-- commit(life, essential, history limit, changes...): applies each change whose expected versions and window match, in
-- the order given. Answers 1 for a change that was applied, else the expected records that are at another version:
-- {record, {version, stamp, value}}...
--
-- KEYS: the names of leases, the names of resources, the history, the history by resource, then all records.
-- A change: from, until, then four sections, each a count and so many times its fields:
--   expected  record, version
--   puts      record, version, value, list, name; a list only if the name is added there, or removed with a deletion
--   history   resource, at, text
--   signals   text, channels with a space between them
-- A record or list is its index in KEYS. A version that is empty means: does not exist. The fields are read where they
-- are: tables for them would take longer than what the script does.
local KEYS, ARGV, tonumber = KEYS, ARGV, tonumber -- globals are slower
local HISTORY = KEYS[3]       -- stream
local HISTORY_NAMES = KEYS[4] -- sorted set: resource \0 id of an entry in HISTORY

local results = {}
if ARGV[1] ~= life then return {time, life, results} end

-- At the memory limit, Redis stops a script only before its first write. ZREM takes no memory, so it is never stopped,
-- and neither is what follows it.
if ARGV[2] == '1' then call('ZREM', KEYS[1], '') end

-- The first and the last field of the section that begins at `position`.
local function section(position, fields)
  return position + 1, position + tonumber(ARGV[position]) * fields
end

-- Padded, so that the order of the text is the order of the entries. Redis reads it as an id nevertheless.
local function history_name(resource, id)
  local milliseconds, sequence = string.match(id, '^(%d+)-(%d+)$')
  return resource .. '\0' .. string.format('%016d-%08d', tonumber(milliseconds), tonumber(sequence))
end

local position, last, remembers = 4, #ARGV, false
while position < last do
  local from, until_ = tonumber(ARGV[position]), tonumber(ARGV[position + 1])
  local first_expected, last_expected = section(position + 2, 2)
  local first_put, last_put = section(last_expected + 1, 5)
  local first_entry, last_entry = section(last_put + 1, 3)
  local first_signal, last_signal = section(last_entry + 1, 2)
  position = last_signal + 1

  local differing = {}
  for at = first_expected, last_expected, 2 do
    local key = KEYS[tonumber(ARGV[at])]
    if (call('HGET', key, 'version') or '') ~= ARGV[at + 1] then
      differing[#differing + 1] = {ARGV[at], call('HMGET', key, 'version', 'stamp', 'value')}
    end
  end
  if differing[1] or (from and now < from) or (until_ and now >= until_) then
    results[#results + 1] = differing
  else
    -- What may fail, because a key holds another program's data, has to fail before a record is written. A name
    -- without a record is left out of listings; a record without a name would be missing there.
    if first_entry <= last_entry then
      call('XLEN', HISTORY)
      call('ZCARD', HISTORY_NAMES)
      remembers = true
    end
    for at = first_put, last_put, 5 do
      local list = KEYS[tonumber(ARGV[at + 3])]
      if list and ARGV[at + 1] == '' then call('ZCARD', list) end
      if list and ARGV[at + 1] ~= '' then call('ZADD', list, 0, ARGV[at + 4]) end
    end

    for at = first_put, last_put, 5 do
      local key, list = KEYS[tonumber(ARGV[at])], KEYS[tonumber(ARGV[at + 3])]
      if ARGV[at + 1] ~= '' then
        call('HSET', key, 'version', ARGV[at + 1], 'stamp', time, 'value', ARGV[at + 2])
      else
        call('DEL', key)
        if list then call('ZREM', list, ARGV[at + 4]) end
      end
    end
    for at = first_entry, last_entry, 3 do
      local when = ARGV[at + 1] ~= '' and ARGV[at + 1] or time
      local id = call('XADD', HISTORY, '*', 'resource', ARGV[at], 'at', when, 'text', ARGV[at + 2])
      call('ZADD', HISTORY_NAMES, 0, history_name(ARGV[at], id))
    end
    for at = first_signal, last_signal, 2 do
      for channel in string.gmatch(ARGV[at + 1], '[^ ]+') do
        if call('PUBLISH', channel, time .. ' ' .. ARGV[at]) > 0 then break end
      end
    end
    results[#results + 1] = 1
  end
end

if remembers then
  local surplus = math.min(call('XLEN', HISTORY) - tonumber(ARGV[3]), 1000)
  if surplus > 0 then
    for _, entry in ipairs(call('XRANGE', HISTORY, '-', '+', 'COUNT', surplus)) do
      call('ZREM', HISTORY_NAMES, history_name(entry[2][2], entry[1]))
      call('XDEL', HISTORY, entry[1])
    end
  end
end
return {time, life, results}
