-- Frees the ticket, and wakes the first two who wait. Says what to answer; nothing when it is not usual.
local unheard = false -- the ticket is free already, but one of them does not listen

local function release_usual()
  if #ARGV ~= 7 or ARGV[7] == 'stepped-down' then return nil end
  local found = usual(2)
  if not found then return nil end
  local holder, term, token = match(call('HMGET', SEATS, seat)[1] or '', '^%d+ (%x+) (%d+) (%d+)$')
  if holder ~= lease then return nil end
  local details = call('HMGET', DETAILS, unpack(found.leases))
  local label = match(details[1] or '', '^%d+ %d+ %S+ (.*)$')
  if not label then return nil end
  local waiters = {}
  for index = 2, #found.leases do
    local ttl, channel = match(details[index] or '', '^(%d+) %d+ (%S+) ')
    if not ttl or found.leases[index] == lease then return nil end
    waiters[index - 1] = {channel, int(index == 2 and 0 or math.max(LEAVES_TO_THE_NEXT, math.floor(ttl / 150)))}
  end
  call('XLEN', HISTORY)
  -- The first write: of a key of another kind the rest is to say it. It takes no memory, so that what follows runs also
  -- at the memory limit.
  if type(redis.pcall('ZREM', HELD, asked .. '\0' .. '0 ' .. token)) == 'table' then return nil end
  note_newest(found, found.claimed, ARGV[2])
  write_down(call, now, ARGV[7], name, label, '0', term, token)
  call('HSET', SEATS, seat, int(now))
  for index, waiter in ipairs(waiters) do
    if call('PUBLISH', waiter[1], waiter[2] .. ' ' .. name) == 0 then
      unheard = true
      return nil
    end
  end
  return answer('released', {{'free'}})
end

local said = release_usual()
if said then return said end
