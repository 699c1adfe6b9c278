-- The usual claim and release: one resource with one ticket, of a lease that lives by the server's own clock, and
-- nothing new, standing, damaged or dead in sight. Most hand-overs are of this kind, and with all cases in one script
-- they would take twice as long. Whatever is not usual is left, before anything is written, to what follows, which knows
-- all cases and says the same of these. What is read as text and stays as it is, is passed on as that text.
local lease, seq, name = ARGV[1], tonumber(ARGV[2]), ARGV[6]
local asked, newest = lease .. '\0' .. name, 'newest:' .. lease .. '\0' .. name
local resource, seat, place = 'resource:' .. name, 'seat:' .. name .. '\0' .. '0', 'place:' .. lease .. '\0' .. name

-- What both look at, with the first rows of the queue; nothing when it is not usual.
local function usual(most)
  look_up('noticed:' .. lease, 'lease:' .. lease, resource, seat, newest, place)
  if meta[1] ~= run or quarantine or tonumber(ARGV[4]) > longest or meta[6] then return nil end
  if ARGV[5] ~= run and ARGV[5] ~= '' then return nil end
  local opened_at, label = match(meta[7] or '', '^%d+ (%d+) %S+ (.*)$')
  local claimed, released = match(meta[10] or '', '^(%d+) (%d+)$')
  if not label or not claimed or seq <= tonumber(claimed) or seq <= tonumber(released) then return nil end
  local queue = call('ZRANGEBYLEX', QUEUE, '[' .. name .. '\0', '(' .. name .. '\1', 'LIMIT', '0', most)
  local leases, from = {lease}, #name + 2
  for _, row in ipairs(queue) do
    if #row ~= from + 74 then return nil end
    local waiter = sub(row, from + 43)
    if waiter ~= lease then leases[#leases + 1] = waiter end
  end
  for _, at in ipairs(call('ZMSCORE', LEASES, unpack(leases))) do
    if not at or tonumber(at) <= now then return nil end
  end
  return {
    opened_at = opened_at, label = label, resource = meta[8] or '', seat = meta[9] or '', place = meta[11] or '',
    claimed = claimed, released = released, queue = queue, leases = leases,
  }
end
