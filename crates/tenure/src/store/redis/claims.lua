-- What claims and releases have in common. Follows the tickets.
local lease, seq, vouched = ARGV[1], tonumber(ARGV[2]), nil

-- By what time the request judges, and nothing when its lease is dead.
local function begin()
  see(tonumber(ARGV[4]))
  vouched = vouched_for(ARGV[3])
  local row, renewed = details_of(lease)
  if not learn(lease, row) then return nil end
  -- One that a later renewal has overtaken judges nobody: what it vouched for may be outdated.
  local judged = seq < renewed and 0 or vouched
  if not judge(lease, judged) then return nil end
  -- By the store's clock its own lease has run out: it has to renew before it may judge others.
  return expiry(lease) <= now and 0 or judged
end

-- Whether anything stood for this worker when the request came. Nothing that stands since can be about what is still
-- to be given.
local noticed

local function drop_notices(name)
  if noticed == nil then noticed = rows(NOTICES, lease, 1)[1] or false end
  if noticed then drop_rows(NOTICES, lease .. '\0' .. name) end
end

-- The numbers of the newest claim and release of a resource by this lease.
local function newest(name)
  local prefix = lease .. '\0' .. name
  local row = rows(NEWEST, prefix, 1)[1]
  if not row then return 0, 0, nil end
  local claimed, released = match(sub(row, #prefix + 2), '^(%d+) (%d+)$')
  return tonumber(claimed), tonumber(released), row
end

local function set_newest(name, claimed, released, before)
  if before then call('ZREM', NEWEST, before) end
  call('ZADD', NEWEST, 0, lease .. '\0' .. name .. '\0' .. int(claimed) .. ' ' .. int(released))
end

-- Of an owner only the seat is left: somebody deleted or evicted the record of its lease. As far as anybody knows it
-- lives, so it is given the longest time that it can still have.
local function adopt(owner)
  expiries[owner] = now + math.floor(longest / 1000)
  call('ZADD', LEASES, int(expiries[owner]), owner)
  if not about(owner) then
    local row = int(longest) .. ' ' .. int(now) .. ' - ?'
    call('HSET', DETAILS, owner, row)
    learn(owner, row)
  end
end

-- Frees the tickets of owners that are dead, and forgets a few dead waiters: false in their place. Says whether any
-- was freed, and who waits.
local function reap(resource, judged)
  local leases, found = waiters(resource)
  prefetch(leases)
  local cleared = 0
  for index, waiter in ipairs(leases) do
    if not lives(waiter, judged) then
      judge(waiter, judged)
      call('HDEL', PLACES, waiter .. '\0' .. resource.name)
      call('ZREM', QUEUE, found[index])
      leases[index] = false
      cleared = cleared + 1
      if cleared == MOST_CLEARED then break end
    end
  end
  local reaped, held = false, {}
  for _, seat in ipairs(resource.seats) do
    if seat.lease then held[#held + 1] = seat end
  end
  for _, seat in ipairs(held) do
    if not expiry(seat.lease) and not call('HGET', ENDED, seat.lease) then
      adopt(seat.lease)
    elseif not judge(seat.lease, judged) then
      local at, why = ending(seat.lease, judged)
      -- A grant may come after the expiry by the store's clock, if the worker vouches for less.
      vacate(resource, seat, math.max(at, seat.since), why)
      reaped = true
    end
  end
  return reaped, leases, found
end

-- How long there are no grants still. A quarantine that is over stays over, also when `longest` grows.
local function quarantine_left(judged)
  if not quarantine then return nil end
  local till = quarantine + math.floor(longest / 1000)
  if till <= judged then
    quarantine = nil
    call('HDEL', META, 'quarantine')
    return nil
  end
  return math.min(math.max(till - vouched, 0) * 1000, longest)
end

-- Whether a waiter with `ahead` live ones before it may take a ticket: 'now', 'taken', or from when on. A matter of
-- order, not of life, so the store's own clock is good enough. And the lowest free seat.
local function turn(resource, ahead, step)
  local free, freed_at, lowest = resource.tickets, nil, nil
  for _, seat in ipairs(resource.seats) do
    if seat.lease then
      free = free - 1
    elseif seat.ticket < resource.tickets then
      freed_at = math.max(freed_at or 0, seat.since)
      lowest = lowest or seat
    end
  end
  if not lowest or free <= 0 then return 'taken' end
  if ahead < free then return 'now', lowest end
  local at = freed_at + math.floor(step * math.min(ahead - free + 1, MOST_STEPS) / 1000)
  if at <= now then return 'now', lowest end
  return at
end

-- How long until the first of the owners would be dead.
local function first_to_end(resource)
  local first
  for _, seat in ipairs(resource.seats) do
    local known = seat.lease and about(seat.lease)
    if known then
      -- Where the caller's judgement lags behind, the span would be longer than any lease: looking once per ttl
      -- finds out when they agree again.
      local at = expiry(seat.lease) or ending(seat.lease, vouched)
      local left = math.min(math.max(at - vouched, 0) * 1000, known.ttl)
      first = math.min(first or left, left)
    end
  end
  return first or 0
end

local function grant(resource, seat)
  resource.term = resource.term + 1
  resource.token = math.max(resource.token + 1, now)
  resource.changed = true
  seat.lease, seat.since, seat.term, seat.token = lease, now, int(resource.term), int(resource.token)
  write_seat(resource, seat)
  call('ZADD', HELD, 0, lease .. '\0' .. resource.name .. '\0' .. int(seat.ticket) .. ' ' .. seat.token)
  drop_notices(resource.name)
  record(resource, about(lease).label, seat, 'granted', now)
  return {'granted', int(seat.ticket), seat.term, seat.token}
end

-- Grants what the worker holds already, or what it may take now; else queues it once, and says when to look again.
local function grant_or_queue(resource, judged, priority, leases, found)
  local left = quarantine_left(judged)
  local owned, me, ahead, waits, place = seat_of(resource, lease), about(lease), 0, false, nil
  if owned and not left then return {'granted', int(owned.ticket), owned.term, owned.token} end
  -- An owner that asks again during a quarantine has no place in the queue, and needs none.
  if not owned then
    for _, waiter in ipairs(leases) do
      if waiter == lease then waits = true end
    end
    if not waits then place = next_place(resource, 0, priority) end
    for index, waiter in ipairs(leases) do
      if waiter == lease or (not waits and place_in(resource, found[index]) > place) then break end
      if waiter and lives(waiter, judged) then ahead = ahead + 1 end
    end
  end
  local at, seat = turn(resource, ahead, me.step)
  -- One that came late may be from a lease that has run out since, which it is not to judge.
  if not left and at == 'now' and lives(lease, vouched) then
    if waits then leave_queue(resource, lease) end
    return grant(resource, seat)
  end
  if place then take_place(resource, lease, place) end
  local later = ahead <= WATCHFUL and me.step * ahead or me.ttl
  local look_again, why
  if left then
    look_again, why = left + later, 'quarantine'
  elseif at == 'now' or at == 'taken' then
    look_again, why = first_to_end(resource) + later, 'taken'
  else
    look_again, why = math.min((at - now) * 1000, me.step * MOST_STEPS), 'turn'
  end
  return {'waiting', int(ahead), int(math.max(look_again, SOONEST)), why}
end
