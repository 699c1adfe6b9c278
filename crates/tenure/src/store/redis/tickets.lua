-- Resources: their seats and queues, who may take a free ticket, who is woken. Follows the prelude in the operations
-- that need it.
local LEAVES_TO_THE_NEXT = 100000000 -- the least that a waiter leaves to each one before it
local MOST_STEPS = 10                -- however far back, nobody waits for more steps once a ticket is free
local MOST_CLEARED = 8               -- dead waiters that one operation clears
local WATCHFUL = 8                   -- up to this place waiters look a step after the one before
local SOONEST = 1000000              -- nobody is told to look again sooner
local UNHEARD = 8                    -- to how many more a hint may go on when nobody listens
local HISTORY_KEPT = 10000

-- What is known of a lease for good.
local details = {}

local function learn(lease, row)
  local known = false
  if row then
    local ttl, opened_at, channel, label = match(row, '^(%d+) (%d+) (%S+) (.*)$')
    ttl = tonumber(ttl)
    local step = math.max(LEAVES_TO_THE_NEXT, math.floor(ttl / 150))
    known = {ttl = ttl, step = step, opened_at = tonumber(opened_at), channel = channel, label = label}
  end
  details[lease] = known
  return known
end

local function about(lease)
  local known = details[lease]
  if known == nil then return learn(lease, call('HGET', DETAILS, lease)) end
  return known
end

-- Looks up the expiries of many leases at once.
local function prefetch(leases)
  for from = 1, #leases, 1000 do
    local to = math.min(from + 999, #leases)
    for index, at in ipairs(call('ZMSCORE', LEASES, unpack(leases, from, to))) do
      expiries[leases[from + index - 1]] = at and tonumber(at)
    end
  end
end

-- When and why the lease of an owner ended; of one that has run out unmarked, as it will be marked.
local function ending(lease, judged)
  local row = call('HGET', ENDED, lease)
  if row then
    local at, why = match(row, '^(%d+) (%a+)$')
    return tonumber(at), why
  end
  return expiry(lease) or judged, 'expired'
end

local function field(resource, ticket)
  return resource.name .. '\0' .. int(ticket)
end

local function write_seat(resource, seat)
  local row = int(seat.since)
  if seat.lease then row = row .. ' ' .. seat.lease .. ' ' .. seat.term .. ' ' .. seat.token end
  call('HSET', SEATS, field(resource, seat.ticket), row)
end

-- Adds free seats up to the number of tickets.
local function extend(resource)
  for ticket = #resource.seats, resource.tickets - 1 do
    local seat = {ticket = ticket, since = now}
    resource.seats[ticket + 1] = seat
    write_seat(resource, seat)
  end
end

-- Drops free seats beyond the number of tickets.
local function trim(resource)
  local seats = resource.seats
  while #seats > resource.tickets and not seats[#seats].lease do
    call('HDEL', SEATS, field(resource, #seats - 1))
    seats[#seats] = nil
    resource.changed = true
  end
end

local function find(name)
  local row = call('HGET', RESOURCES, name)
  if not row then return nil end
  local tickets, opened_at, lease, seq, arrivals, term, token, count =
    match(row, '^(%d+) (%d+) (%x+) (%d+) (%d+) (%d+) (%d+) (%d+)$')
  local resource = {
    name = name, tickets = tonumber(tickets), arrivals = tonumber(arrivals), term = tonumber(term),
    token = tonumber(token), set_at = tonumber(opened_at), set_by = lease, set_seq = tonumber(seq), seats = {},
  }
  for from = 0, count - 1, 1000 do
    local fields = {}
    for ticket = from, math.min(from + 999, count - 1) do fields[#fields + 1] = field(resource, ticket) end
    for index, seat in ipairs(call('HMGET', SEATS, unpack(fields))) do
      if not seat then error('TENUREDAMAGED a seat is missing') end
      local since, rest = match(seat, '^(%d+)(.*)$')
      local found = {ticket = from + index - 1, since = tonumber(since)}
      if rest ~= '' then found.lease, found.term, found.token = match(rest, '^ (%x+) (%d+) (%d+)$') end
      resource.seats[from + index] = found
    end
  end
  return resource
end

-- Writes back what belongs to the resource as a whole, if it has changed.
local function save(resource)
  if not resource.changed then return end
  resource.changed = false
  call('HSET', RESOURCES, resource.name, table.concat({
    int(resource.tickets), int(resource.set_at), resource.set_by, int(resource.set_seq), int(resource.arrivals),
    int(resource.term), int(resource.token), int(#resource.seats),
  }, ' '))
end

local is_whole = false

-- A resource is made only where none can have been: what is missing while a part of it, or of the others, is there
-- was lost, and somebody may own it.
local function check_never_made(name)
  if call('ZSCORE', NAMES, name) or call('HGET', SEATS, name .. '\0' .. '0') then
    error('TENUREDAMAGED a resource is missing')
  end
  if is_whole then return end
  is_whole = true
  if call('EXISTS', RESOURCES) == 1 then return end
  if call('HGET', META, 'made') then error('TENUREDAMAGED the resources are missing') end
  call('HSET', META, 'made', '1')
end

local function make(name, tickets, lease, seq)
  check_never_made(name)
  local resource = {
    name = name, tickets = tickets, arrivals = 0, term = 0, token = 0, changed = true,
    set_at = about(lease).opened_at, set_by = lease, set_seq = seq, seats = {},
  }
  call('ZADD', NAMES, 0, name)
  extend(resource)
  return resource
end

local function seat_of(resource, lease)
  for _, seat in ipairs(resource.seats) do
    if seat.lease == lease then return seat end
  end
end

-- Writes down what happened to an ownership.
local function record(resource, worker, seat, what, at)
  call('XADD', HISTORY, 'MAXLEN', '~', HISTORY_KEPT, '*', 'at', int(at), 'what', what, 'resource', resource.name,
    'worker', worker, 'ticket', int(seat.ticket), 'term', seat.term, 'token', seat.token)
end

-- Frees a ticket, everywhere where it is written down.
local function vacate(resource, seat, at, what)
  local lease = seat.lease
  call('ZREM', HELD, lease .. '\0' .. resource.name .. '\0' .. int(seat.ticket) .. ' ' .. seat.token)
  local known = about(lease)
  if known then record(resource, known.label, seat, what, at) end
  seat.lease, seat.term, seat.token, seat.since = nil, nil, nil, at
  write_seat(resource, seat)
  trim(resource)
  if not expiry(lease) then let_go(lease, (ending(lease, at))) end
end

-- The waiters in order: those whom an operator named, the last named first; then by priority; then by arrival. Their
-- leases, and beside them the rows.
local function waiters(resource)
  local found, leases, from = rows(QUEUE, resource.name), {}, #resource.name + 45
  for index, row in ipairs(found) do
    leases[index] = sub(row, from)
  end
  return leases, found
end

-- Where in the row of a waiter its place begins.
local function place_in(resource, row)
  return sub(row, #resource.name + 2, #resource.name + 43)
end

-- The place of one that comes now. All are digits of one length, so that they compare as text in every locale.
local function next_place(resource, named, priority)
  resource.arrivals = resource.arrivals + 1
  resource.changed = true
  return format('%016.0f%010.0f%016.0f', 9007199254740991 - named, 2147483647 - priority, resource.arrivals)
end

local function take_place(resource, lease, place)
  call('HSET', PLACES, lease .. '\0' .. resource.name, place)
  call('ZADD', QUEUE, 0, resource.name .. '\0' .. place .. ' ' .. lease)
end

local function place_of(resource, lease)
  return call('HGET', PLACES, lease .. '\0' .. resource.name)
end

local function priority_of(place)
  return 2147483647 - tonumber(sub(place, 17, 26))
end

local function leave_queue(resource, lease)
  local place = place_of(resource, lease)
  if place then
    call('HDEL', PLACES, lease .. '\0' .. resource.name)
    call('ZREM', QUEUE, resource.name .. '\0' .. place .. ' ' .. lease)
  end
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
end

-- Hints those who may take a free ticket at once, and tells the next to look one step later. Where nobody listens
-- the hint goes on to the next.
local function wake(resource, except, judged)
  local free = resource.tickets
  for _, seat in ipairs(resource.seats) do
    if seat.lease and lives(seat.lease, judged) then free = free - 1 end
  end
  if free <= 0 then return end
  local told, unheard, from = 0, 0, #resource.name + 2
  local first, last = '[' .. resource.name .. '\0', '(' .. resource.name .. '\1'
  local seen, page = 0, nil
  repeat
    page = call('ZRANGEBYLEX', QUEUE, first, last, 'LIMIT', seen, free + 1)
    seen = seen + #page
    for _, row in ipairs(page) do
      local lease = sub(row, from + 43)
      if lives(lease, judged) then
        local after = told < free and 0 or about(lease).step
        if lease == except or call('PUBLISH', about(lease).channel, int(after) .. ' ' .. resource.name) > 0 then
          told = told + 1
        else
          unheard = unheard + 1
        end
        if told > free or unheard > UNHEARD then return end
      end
    end
  until #page <= free
end
