-- Grants the free ticket to the first who waits. Says what to answer; nothing when it is not usual.
local function claim_usual()
  if #ARGV ~= 8 or ARGV[7] ~= '1' then return nil end
  local found = usual(FIRST_LOOK)
  if not found or found.leases[2] ~= lease then return nil end
  if not match(call('HMGET', SEATS, seat)[1] or '', '^%d+$') then return nil end
  local opened_at, label = match(call('HMGET', DETAILS, lease)[1] or '', '^%d+ (%d+) %S+ (.*)$')
  if not label then return nil end
  local place = sub(found.queue[1], #name + 2, #name + 43)
  if call('HMGET', PLACES, asked)[1] ~= place then return nil end
  call('ZSCORE', HELD, '')
  local set_at, set_by, set_seq, arrivals, term, token = unpack(found)
  if tonumber(opened_at) > tonumber(set_at) or (lease == set_by and seq > tonumber(set_seq)) then
    set_at, set_by, set_seq = opened_at, lease, ARGV[2]
  end
  term, token = int(term + 1), int(math.max(token + 1, now))
  -- The first write: of a key of another kind, and of the memory limit, the rest is to say it.
  if type(write_down(redis.pcall, now, 'granted', name, label, '0', term, token)) == 'table' then return nil end
  note_newest(found, ARGV[2], found.released)
  call('HDEL', PLACES, asked)
  call('ZREM', QUEUE, found.queue[1])
  call('ZADD', HELD, 0, asked .. '\0' .. '0 ' .. token)
  call('HSET', SEATS, seat, int(now) .. ' ' .. lease .. ' ' .. term .. ' ' .. token)
  call('HSET', RESOURCES, name, table.concat({'1', set_at, set_by, set_seq, arrivals, term, token, '1'}, ' '))
  return answer('claimed', {{'granted', '0', term, token}})
end

local said = claim_usual()
if said then return said end
