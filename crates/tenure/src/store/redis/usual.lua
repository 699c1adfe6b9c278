-- The usual claim and release: one resource with one ticket, of a lease that lives by the server's own clock, and
-- nothing new, standing, damaged or dead in sight. Most hand-overs are of this kind, and with all cases in one script
-- they would take twice as long. Whatever is not usual is left, before anything is written, to what follows, which knows
-- all cases and says the same of these.
local lease, seq, name = ARGV[1], tonumber(ARGV[2]), ARGV[6]
local asked, seat = lease .. '\0' .. name, name .. '\0' .. '0'

-- What both look at, with the first rows of the queue; nothing when it is not usual.
local function usual(most)
  if meta[1] ~= run or quarantine or tonumber(ARGV[4]) > longest then return nil end
  if ARGV[5] ~= run and ARGV[5] ~= '' then return nil end
  local known = call('HMGET', RESOURCES, name)[1]
  if not known then return nil end
  local found = {match(known, '^1 (%d+) (%x+) (%d+) (%d+) (%d+) (%d+) 1$')}
  local row = call('ZRANGEBYLEX', NEWEST, '[' .. asked .. '\0', '(' .. asked .. '\1', 'LIMIT', 0, 1)[1]
  if not found[1] or not row then return nil end
  local claimed, released = match(sub(row, #asked + 2), '^(%d+) (%d+)$')
  if not claimed or seq <= tonumber(claimed) or seq <= tonumber(released) then return nil end
  if call('ZRANGEBYLEX', NOTICES, '[' .. lease .. '\0', '(' .. lease .. '\1', 'LIMIT', 0, 1)[1] then return nil end
  local queue = call('ZRANGEBYLEX', QUEUE, '[' .. name .. '\0', '(' .. name .. '\1', 'LIMIT', 0, most)
  local leases, from = {lease}, #name + 2
  for index, waiter in ipairs(queue) do
    if #waiter ~= from + 74 then return nil end
    leases[index + 1] = sub(waiter, from + 43)
  end
  for _, at in ipairs(call('ZMSCORE', LEASES, unpack(leases))) do
    if not at or tonumber(at) <= now then return nil end
  end
  found.row, found.claimed, found.released, found.queue, found.leases = row, claimed, released, queue, leases
  return found
end

local function note_newest(found, claimed, released)
  call('ZREM', NEWEST, found.row)
  call('ZADD', NEWEST, 0, asked .. '\0' .. claimed .. ' ' .. released)
end
