-- Frees the ticket, and wakes the first two who wait. Says what to answer; nothing when it is not usual.
local unheard = false -- the ticket is free already, but one of them does not listen

local function release_usual()
  if #ARGV ~= 7 or ARGV[7] == 'stepped-down' then return nil end
  local found = usual('2')
  if not found or not match(found.resource, '^1 %d+ %x+ %d+ %d+ %d+ %d+ 1$') then return nil end
  local holder, term, token = match(found.seat, '^%d+ (%x+) (%d+) (%d+)$')
  if holder ~= lease or #found.leases ~= #found.queue + 1 then return nil end
  local waiters = {}
  if found.queue[1] then
    local first, second = found.leases[2], found.leases[3] or found.leases[2]
    local details = call('HMGET', STATE, 'lease:' .. first, 'lease:' .. second)
    for index = 1, #found.queue do
      local ttl, channel = match(details[index] or '', '^(%d+) %d+ (%S+) ')
      if not ttl then return nil end
      local after = index == 1 and '0' or int(math.max(LEAVES_TO_THE_NEXT, math.floor(ttl / 150)))
      waiters[index] = {channel, after .. ' ' .. name}
    end
  end
  -- The first writes: of a key of another kind the rest is to say it. The first takes no memory, so that what follows
  -- runs also at the memory limit.
  local row, ended = asked .. '\0' .. '0 ' .. token, entry(time, ARGV[7], name, found.label, '0', term, token)
  local dropped = redis.pcall('ZREM', HELD, row)
  if type(dropped) == 'table' then return nil end
  if type(write_down(redis.pcall, ended)) == 'table' then
    if dropped == 1 then call('ZADD', HELD, '0', row) end
    return nil
  end
  call('HSET', STATE, newest, found.claimed .. ' ' .. ARGV[2], seat, time)
  for _, waiter in ipairs(waiters) do
    if call('PUBLISH', waiter[1], waiter[2]) == 0 then
      unheard = true
      return nil
    end
  end
  return answer('released', {{'free'}})
end

local said = release_usual()
if said then return said end
