-- commit(life, essential, history limit, changes...): applies each change whose expected versions and window match, in
-- the order given. Answers 1 for a change that was applied, else the expected records that are at another version:
-- {record, {version, stamp, value}}...
--
-- KEYS: the names of leases, the names of resources, the history, the history by resource, then all records.
-- A change: from, until, count of expected, {record, version}..., count of puts, {record, version, value}...,
-- count of history entries, {resource, at, text}..., count of signals, {text, count of channels, channel...}...
-- A record is its index in KEYS. An empty `from`, `until` or `at` is none; an empty version in a put deletes.
local LISTS = {lease = KEYS[1], resource = KEYS[2]} -- sorted sets with all scores 0, ordered by name
local HISTORY = KEYS[3]                             -- stream
local HISTORY_NAMES = KEYS[4]                       -- sorted set: resource \0 id of an entry in HISTORY

local results = {}
if ARGV[1] ~= life then return {time, life, results} end

-- Keys that hold another program's data have to fail here, before anything is written.
for _, key in ipairs({KEYS[1], KEYS[2], KEYS[4]}) do call('ZCARD', key) end
call('XLEN', HISTORY)

-- At the memory limit, Redis stops a script only before its first write. ZREM takes no memory, so it is never stopped,
-- and neither is what follows it.
if ARGV[2] == '1' then call('ZREM', KEYS[1], '') end

local position = 3
local function take()
  position = position + 1
  return ARGV[position]
end

local function take_all(fields)
  local all = {}
  for index = 1, tonumber(take()) do
    all[index] = {}
    for field = 1, fields do all[index][field] = take() end
  end
  return all
end

local function take_signals()
  local all = {}
  for index = 1, tonumber(take()) do
    all[index] = {text = take(), channels = take_all(1)}
  end
  return all
end

-- Padded, so that the order of the text is the order of the entries. Redis reads it as an id nevertheless.
local function history_name(resource, id)
  local milliseconds, sequence = string.match(id, '^(%d+)-(%d+)$')
  return resource .. '\0' .. string.format('%016d-%08d', tonumber(milliseconds), tonumber(sequence))
end

local function write(key, version, value, is_new)
  -- If a right is missing in between, there is a name without a record, which listings leave out, and never the reverse.
  local kind, name = string.match(key, '}:(%a+)/(.*)$')
  local list = LISTS[kind]
  if version == '' then
    call('DEL', key)
    if list then call('ZREM', list, name) end
  else
    if list and is_new then call('ZADD', list, 0, name) end
    call('HSET', key, 'version', version, 'stamp', time, 'value', value)
  end
end

local function publish(signal)
  for _, channel in ipairs(signal.channels) do
    if call('PUBLISH', channel[1], time .. ' ' .. signal.text) > 0 then return end
  end
end

local remembers = false
while position < #ARGV do
  local from, until_ = tonumber(take()), tonumber(take())
  local expected, puts, entries, signals = take_all(2), take_all(3), take_all(3), take_signals()
  local differing, exists = {}, {}
  for _, expect in ipairs(expected) do
    local key = KEYS[tonumber(expect[1])]
    exists[expect[1]] = expect[2] ~= ''
    if (call('HGET', key, 'version') or '') ~= expect[2] then
      differing[#differing + 1] = {expect[1], call('HMGET', key, 'version', 'stamp', 'value')}
    end
  end
  if differing[1] or (from and now < from) or (until_ and now >= until_) then
    results[#results + 1] = differing
  else
    for _, entry in ipairs(entries) do
      local at = entry[2] ~= '' and entry[2] or time
      local id = call('XADD', HISTORY, '*', 'resource', entry[1], 'at', at, 'text', entry[3])
      call('ZADD', HISTORY_NAMES, 0, history_name(entry[1], id))
      remembers = true
    end
    for _, put in ipairs(puts) do write(KEYS[tonumber(put[1])], put[2], put[3], not exists[put[1]]) end
    for _, signal in ipairs(signals) do publish(signal) end
    results[#results + 1] = 1
  end
end

if remembers then
  local limit = tonumber(ARGV[3])
  local surplus = math.min(call('XLEN', HISTORY) - limit, 1000)
  if surplus > 0 then
    for _, entry in ipairs(call('XRANGE', HISTORY, '-', '+', 'COUNT', surplus)) do
      call('ZREM', HISTORY_NAMES, history_name(entry[2][2], entry[1]))
      call('XDEL', HISTORY, entry[1])
    end
  end
end
return {time, life, results}
