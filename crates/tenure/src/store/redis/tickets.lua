-- Resources: their seats and queues, who may take a free ticket, who is woken. Follows the prelude in the operations
-- that need it.
--
-- Reading comes before writing: a resource is found whole before anything is written, and what cannot be read is
-- said by its `damage`. Changes of seats are kept until the resource is saved.
local MOST_STEPS = 10                -- however far back, nobody waits for more steps once a ticket is free
local MOST_CLEARED = 8               -- dead waiters that one operation clears
local WATCHFUL = 8                   -- up to this place waiters look a step after the one before
local SOONEST = 1000000              -- nobody is told to look again sooner
local UNHEARD = 8                    -- to how many more a hint may go on when nobody listens
local MOST_TICKETS = 10000
local FEW = 16                       -- seats; where there are more they are read when they are needed
local LOOK = 500                     -- rows of a queue that are read at a time, behind the first
local MOST_LOOKED = 1000             -- waiters behind these count as living
local MOST_PASSED = 10000            -- dead waiters that a hint goes past

-- The fields of STATE that begin with `kind`, for each of these one.
local function fields(kind, list)
  local found = {}
  for from = 1, #list, AT_ONCE do
    local names = {}
    for index = from, math.min(from + AT_ONCE - 1, #list) do names[#names + 1] = kind .. list[index] end
    for index, value in ipairs(call('HMGET', STATE, unpack(names))) do found[from + index - 1] = value end
  end
  return found
end

-- What is known of a lease for good; false of one of which nothing is.
local details = {}

local function learn(lease, row)
  local known = false
  local ttl, opened_at, channel, label = match(row or '', '^(%d+) (%d+) (%S+) (.*)$')
  if ttl then
    ttl = tonumber(ttl)
    local step = math.max(LEAVES_TO_THE_NEXT, math.floor(ttl / 150))
    known = {ttl = ttl, step = step, opened_at = tonumber(opened_at), channel = channel, label = label}
  end
  details[lease] = known
  return known
end

local function about(lease)
  local known = details[lease]
  if known == nil then return learn(lease, call('HGET', STATE, 'lease:' .. lease)) end
  return known
end

local function label_of(lease)
  local known = about(lease)
  return known and known.label or '?'
end

-- Looks up the expiries of many leases at once, as far as they are not known.
local function prefetch(leases)
  local unknown = {}
  for _, lease in ipairs(leases) do
    if expiries[lease] == nil then unknown[#unknown + 1] = lease end
  end
  for from = 1, #unknown, AT_ONCE do
    local to = math.min(from + AT_ONCE - 1, #unknown)
    for index, at in ipairs(call('ZMSCORE', LEASES, unpack(unknown, from, to))) do
      expiries[unknown[from + index - 1]] = at and tonumber(at)
    end
  end
end

-- And what else is known of them.
local function learn_all(leases)
  for index, row in ipairs(fields('lease:', leases)) do learn(leases[index], row) end
end

-- When and why the lease of an owner ended; of one that has run out unmarked, as it will be marked.
local function ending(lease, judged)
  local at, why = match(call('HGET', ENDED, lease) or '', '^(%d+) (%a+)$')
  if at then return tonumber(at), why end
  return expiry(lease) or judged, 'expired'
end

-- A seat as it is written down, or nothing.
local function seat_in(row, ticket)
  if not row then return nil end
  local since, lease, term, token = match(row, '^(%d+) (%x+) (%d+) (%d+)$')
  if lease and #lease == 32 then
    return {ticket = ticket, since = tonumber(since), lease = lease, term = term, token = token}
  end
  if match(row, '^%d+$') then return {ticket = ticket, since = tonumber(row)} end
end

-- Some of the seats of a resource, from this ticket on.
local function read_seats(resource, from, most)
  local seats, tickets = {}, {}
  for ticket = from, math.min(from + most, resource.count) - 1 do tickets[#tickets + 1] = ticket end
  for index, row in ipairs(fields('seat:' .. resource.name .. '\0', tickets)) do
    local seat = seat_in(row, tickets[index])
    if not seat then resource.damage = 'a seat' end
    seats[#seats + 1] = seat
  end
  return seats
end

local function seats_of(resource)
  if not resource.seats then
    resource.seats = read_seats(resource, 0, MOST_TICKETS)
    -- One that was read before may have changed since.
    if resource.apart then resource.seats[resource.apart.ticket + 1] = resource.apart end
  end
  return resource.seats
end

-- A resource as it is written down.
local function resource_in(name, row)
  local tickets, opened_at, lease, seq, arrivals, term, token, count =
    match(row, '^(%d+) (%d+) (%x+) (%d+) (%d+) (%d+) (%d+) (%d+)$')
  tickets, count = tonumber(tickets), tonumber(count)
  if not count or count < tickets or count > MOST_TICKETS then
    return {name = name, damage = 'its record', tickets = 0, count = 0, seats = {}}
  end
  return {
    name = name, tickets = tickets, count = count, arrivals = tonumber(arrivals), term = tonumber(term),
    token = tonumber(token), set_at = tonumber(opened_at), set_by = lease, set_seq = tonumber(seq),
    touched = {}, dropped = {},
  }
end

-- Those of these names that are there, by name, with their seats where they are few.
local function find_all(names)
  local found, places, seats = {}, {}, {}
  for index, row in ipairs(fields('resource:', names)) do
    local name = names[index]
    if row and not found[name] then
      local resource = resource_in(name, row)
      found[name] = resource
      if not resource.damage and resource.count <= FEW then
        resource.seats = {}
        for ticket = 0, resource.count - 1 do
          places[#places + 1] = name .. '\0' .. ticket
          seats[#seats + 1] = resource
        end
      end
    end
  end
  for index, row in ipairs(fields('seat:', places)) do
    local resource = seats[index]
    local seat = seat_in(row, #resource.seats)
    if not seat then resource.damage = 'a seat' end
    resource.seats[#resource.seats + 1] = seat
  end
  return found
end

local function find(name)
  return find_all({name})[name]
end

-- What to answer when a resource is damaged.
local function damaged(name, what)
  return redis.error_reply('TENUREDAMAGED ' .. name .. ': ' .. what)
end

local function touch(resource, seat)
  if not seat.touched then
    seat.touched = true
    resource.touched[#resource.touched + 1] = seat
  end
end

-- Adds free seats up to the number of tickets.
local function extend(resource)
  local seats = seats_of(resource)
  for ticket = resource.count, resource.tickets - 1 do
    local seat = {ticket = ticket, since = now}
    seats[ticket + 1] = seat
    touch(resource, seat)
  end
  resource.count = #seats
end

-- Drops free seats beyond the number of tickets.
local function trim(resource)
  if resource.count <= resource.tickets then return end
  local seats = seats_of(resource)
  if resource.damage then return end
  while #seats > resource.tickets and not seats[#seats].lease do
    seats[#seats].dropped = true
    resource.dropped[#resource.dropped + 1] = 'seat:' .. resource.name .. '\0' .. (#seats - 1)
    seats[#seats] = nil
    resource.changed = true
  end
  resource.count = #seats
end

-- Writes back what has changed.
local function save(resource)
  local rows = {}
  local function write()
    if rows[1] then call('HSET', STATE, unpack(rows)) end
    rows = {}
  end
  for _, seat in ipairs(resource.touched) do
    if not seat.dropped then
      local row = int(seat.since)
      if seat.lease then row = row .. ' ' .. seat.lease .. ' ' .. seat.term .. ' ' .. seat.token end
      rows[#rows + 1] = 'seat:' .. resource.name .. '\0' .. seat.ticket
      rows[#rows + 1] = row
      if #rows == AT_ONCE then write() end
    end
    seat.touched = false
  end
  if resource.changed then
    rows[#rows + 1] = 'resource:' .. resource.name
    rows[#rows + 1] = table.concat({
      int(resource.tickets), int(resource.set_at), resource.set_by, int(resource.set_seq), int(resource.arrivals),
      int(resource.term), int(resource.token), int(resource.count),
    }, ' ')
  end
  write()
  for from = 1, #resource.dropped, AT_ONCE do
    call('HDEL', STATE, unpack(resource.dropped, from, math.min(from + AT_ONCE - 1, #resource.dropped)))
  end
  resource.touched, resource.dropped, resource.changed = {}, {}, false
end

-- The seat of this lease. Where there are many, what is written down for the lease says which; if nothing is, all are
-- looked at.
local function seat_of(resource, lease)
  if not resource.seats then
    local prefix = lease .. '\0' .. resource.name
    local ticket = match(sub(rows(HELD, prefix, 1)[1] or '', #prefix + 2), '^(%d+) %d+$')
    local seat = ticket and seat_in(call('HGET', STATE, 'seat:' .. resource.name .. '\0' .. ticket), tonumber(ticket))
    if seat and seat.lease == lease then
      resource.apart = seat
      return seat
    end
  end
  for _, seat in ipairs(seats_of(resource)) do
    if seat.lease == lease then return seat end
  end
end

-- The leases of its owners.
local function owners_of(resource)
  local leases = {}
  for _, seat in ipairs(seats_of(resource)) do
    if seat.lease then leases[#leases + 1] = seat.lease end
  end
  return leases
end

local function record(resource, worker, seat, what, at)
  write_down(entry(int(at), what, resource.name, worker, seat.ticket, seat.term, seat.token))
end

-- Frees a ticket, everywhere where it is written down.
local function vacate(resource, seat, at, what)
  local lease = seat.lease
  call('ZREM', HELD, lease .. '\0' .. resource.name .. '\0' .. int(seat.ticket) .. ' ' .. seat.token)
  record(resource, label_of(lease), seat, what, at)
  seat.lease, seat.term, seat.token, seat.since = nil, nil, nil, at
  touch(resource, seat)
  trim(resource)
  if not expiry(lease) then let_go(lease, (ending(lease, at))) end
end

-- What these rows of the queue say: the leases, and beside them their places. A row that is none of ours is left out.
local function page_of(resource, rows)
  local leases, places, from = {}, {}, #resource.name + 2
  for _, row in ipairs(rows) do
    if #row == from + 74 then
      leases[#leases + 1] = sub(row, from + 43)
      places[#places + 1] = sub(row, from, from + 41)
    end
  end
  return {count = #rows, last = rows[#rows], leases = leases, places = places}
end

-- Some of those who wait, in order, behind the row `after`: first those whom an operator named, the last named first;
-- then by priority; then by arrival.
local function waiting(resource, after, most)
  local from = after and '(' .. after or '[' .. resource.name .. '\0'
  return page_of(resource, call('ZRANGEBYLEX', QUEUE, from, '(' .. resource.name .. '\1', 'LIMIT', 0, most))
end

-- The place of one that comes now. All are digits of one length, so that they compare as text in every locale.
local function next_place(resource, named, priority)
  resource.arrivals = resource.arrivals + 1
  resource.changed = true
  return format('%016.0f%010.0f%016.0f', 9007199254740991 - named, 2147483647 - priority, resource.arrivals)
end

local function take_place(resource, lease, place)
  call('HSET', STATE, 'place:' .. lease .. '\0' .. resource.name, place)
  call('ZADD', QUEUE, 0, resource.name .. '\0' .. place .. ' ' .. lease)
end

local function priority_of(place)
  return 2147483647 - tonumber(sub(place, 17, 26))
end

local function leave_place(resource, lease, place)
  call('HDEL', STATE, 'place:' .. lease .. '\0' .. resource.name)
  call('ZREM', QUEUE, resource.name .. '\0' .. place .. ' ' .. lease)
end

-- Leaves a notice for the worker of an ownership, if its lease stands. A stronger one that stands already stays.
local function notify(resource, seat, wish)
  if not expiry(seat.lease) then return end
  local prefix = seat.lease .. '\0' .. resource.name
  local standing = rows(NOTICES, prefix, 1)[1]
  if standing then
    local token, before = match(sub(standing, #prefix + 2), '^(%d+) (%d)$')
    if token == seat.token and tonumber(before) > wish then wish = tonumber(before) end
    call('ZREM', NOTICES, standing)
  end
  call('ZADD', NOTICES, 0, prefix .. '\0' .. seat.token .. ' ' .. wish)
  call('HSET', STATE, 'noticed:' .. seat.lease, '1')
end

-- How many rows to read first for waking: as many as could be told.
local function wakeable(resource)
  return math.min(resource.tickets + 1, LOOK)
end

-- Hints those who may take a free ticket at once, and tells the next to look one step later. Where nobody listens
-- the hint goes on to the next. `page` is the first one of the queue, if it is known.
local function wake(resource, except, judged, page)
  local most = wakeable(resource)
  page = page or waiting(resource, nil, most)
  if page.count == 0 then return end
  local free, owners = resource.tickets, owners_of(resource)
  -- Nobody knows how many own it. Those who wait look again by themselves.
  if resource.damage then return end
  prefetch(owners)
  for _, owner in ipairs(owners) do
    if lives(owner, judged) then free = free - 1 end
  end
  local told, unheard, passed = 0, 0, 0
  while free > 0 and passed < MOST_PASSED do
    local living = {}
    prefetch(page.leases)
    for _, lease in ipairs(page.leases) do
      if lives(lease, judged) then living[#living + 1] = lease end
    end
    learn_all(living)
    for _, lease in ipairs(living) do
      local known = details[lease]
      if known then
        local after = told < free and 0 or known.step
        if lease == except or call('PUBLISH', known.channel, int(after) .. ' ' .. resource.name) > 0 then
          told = told + 1
        else
          unheard = unheard + 1
        end
        if told > free or unheard > UNHEARD then return end
      end
    end
    if page.count < most then return end
    passed, most = passed + page.count, LOOK
    page = waiting(resource, page.last, most)
  end
end
