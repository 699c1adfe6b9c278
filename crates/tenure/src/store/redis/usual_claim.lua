-- Grants the free ticket to the first who waits. Says what to answer; nothing when it is not usual.
local function claim_usual()
  if #ARGV ~= 8 or ARGV[7] ~= '1' then return nil end
  local found = usual(FIRST_LOOK)
  if not found or not match(found.seat, '^%d+$') then return nil end
  if found.queue[1] ~= name .. '\0' .. found.place .. ' ' .. lease then return nil end
  local set_at, set_by, set_seq, arrivals, term, token =
    match(found.resource, '^1 (%d+) (%x+) (%d+) (%d+) (%d+) (%d+) 1$')
  if not token then return nil end
  if tonumber(found.opened_at) > tonumber(set_at) or (lease == set_by and seq > tonumber(set_seq)) then
    set_at, set_by, set_seq = found.opened_at, lease, ARGV[2]
  end
  term, token = int(term + 1), now > tonumber(token) and time or int(token + 1)
  -- The first writes: of a key of another kind, and of the memory limit, the rest is to say it.
  local row, granted = asked .. '\0' .. '0 ' .. token, entry(time, 'granted', name, found.label, '0', term, token)
  if type(redis.pcall('ZADD', HELD, '0', row)) == 'table' then return nil end
  if type(write_down(redis.pcall, granted)) == 'table' then
    call('ZREM', HELD, row)
    return nil
  end
  call('ZREM', QUEUE, found.queue[1])
  call('HDEL', STATE, place)
  local shared = ' ' .. term .. ' ' .. token
  call('HSET', STATE, newest, ARGV[2] .. ' ' .. found.released, seat, time .. ' ' .. lease .. shared,
    resource, '1 ' .. set_at .. ' ' .. set_by .. ' ' .. set_seq .. ' ' .. arrivals .. shared .. ' 1')
  return answer('claimed', {{'granted', '0', term, token}})
end

local said = claim_usual()
if said then return said end
