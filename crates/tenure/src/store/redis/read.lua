-- read(resource, cursor): owners and waiters of one resource, or, if none is named, of all in the order of their
-- names, about 2000 rows at a time. Those whose lease is over are left out. Of a resource with more rows than that the
-- rest follows under the same name. Damaged ones are left out, and named. Marks nobody.
local METADATA = KEYS[11] -- hash: lease -> what its worker tells
local METADATA_ROW = 512  -- so many bytes of metadata count like one row more

-- Calls `tell` for those of these who live, with their index and what is known of them.
local function tell_living(leases, tell)
  local living, indexes = {}, {}
  left = left - #leases
  prefetch(leases)
  for index, lease in ipairs(leases) do
    if lives(lease, now) then
      living[#living + 1] = lease
      indexes[#indexes + 1] = index
    end
  end
  if not living[1] then return end
  learn_all(living)
  for index, metadata in ipairs(call('HMGET', METADATA, unpack(living))) do
    local lease = living[index]
    metadata = metadata or ''
    left = left - math.floor(#metadata / METADATA_ROW)
    tell(indexes[index], label_of(lease), metadata, int(expiry(lease) - now))
  end
end

-- The owners from this ticket on. Says from which to go on, if some are left.
local function tell_owners(resource, ticket, owners)
  while ticket < resource.count do
    if left <= 0 then return ticket end
    local seats, held, leases = some_seats(resource, ticket), {}, {}
    if not seats then return nil end
    for _, seat in ipairs(seats) do
      if seat.lease then
        held[#held + 1] = seat
        leases[#leases + 1] = seat.lease
      end
    end
    left = left - math.floor((#seats - #leases) / 4)
    tell_living(leases, function(index, label, metadata, remaining)
      local seat = held[index]
      owners[#owners + 1] = {
        label, metadata, int(seat.ticket), seat.term, seat.token, int(math.max(now - seat.since, 0)), remaining,
      }
    end)
    ticket = ticket + #seats
  end
end

-- The waiters behind this row. Says behind which to go on, if some are left.
local function tell_waiters(resource, row, queue)
  while true do
    if left <= 0 then return row or '' end
    local page = waiting(resource, row, PIECE)
    tell_living(page.leases, function(_, label, metadata, remaining)
      queue[#queue + 1] = {label, metadata, remaining}
    end)
    if page.count < PIECE then return nil end
    row = page.last
  end
end

-- For how long nothing is granted still; a life that nobody has noticed yet begins with that.
local from = meta[1] == run and quarantine or meta[1] ~= run and now
local withheld = from and math.min(from - now, 0) + math.floor(longest / 1000) or 0

local views = {}
local cursor = walk(ARGV[1], ARGV[2], function(resource, part)
  local owners, queue = {}, {}
  local view = {resource.name, int(resource.tickets), owners, queue, int(math.max(withheld, 0))}
  -- t TICKET: so far the owners were told; q ROW: and all of them, and the waiters so far.
  local row = match(part, '^q(.*)$')
  if not row then
    local ticket = tell_owners(resource, tonumber(match(part, '^t(%d+)$') or 0), owners)
    if resource.damage then return '' end
    if ticket then
      views[#views + 1] = view
      return 't' .. ticket
    end
  end
  if row == '' then row = nil end
  row = tell_waiters(resource, row, queue)
  views[#views + 1] = view
  return row and 'q' .. row or ''
end)
return answer(views, cursor, left_out)
