-- What claims and releases have in common. Follows the tickets.
local lease, seq, vouched = ARGV[1], tonumber(ARGV[2]), nil
local FIRST = 6 -- where in ARGV the resources begin

-- By what time the request judges, and nothing when its lease is dead.
local function begin()
  see(tonumber(ARGV[4]), ARGV[5])
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
  if not noticed then return end
  drop_rows(NOTICES, lease .. '\0' .. name)
  if not rows(NOTICES, lease, 1)[1] then call('HDEL', STATE, 'noticed:' .. lease) end
end

-- The numbers of the newest claim and release by this lease, of each of these resources; nothing where they cannot be
-- read, or were lost.
local function newest(names)
  local numbers, unasked, rows = {}, {}, {}
  for index, row in ipairs(fields('newest:' .. lease .. '\0', names)) do
    local claimed, released = match(row or '', '^(%d+) (%d+)$')
    numbers[index] = {tonumber(claimed), tonumber(released)}
    if not row then
      unasked[#unasked + 1] = index
      rows[#rows + 1] = lease .. '\0' .. names[index]
    end
  end
  for at, asked in ipairs(rows[1] and call('ZMSCORE', NEWEST, unpack(rows)) or {}) do
    -- Where there is a row the numbers were lost, and an older request could pass for a new one.
    if not asked then numbers[unasked[at]] = {0, 0, first = true} end
  end
  return numbers
end

local function set_newest(case, claimed, released)
  local row = lease .. '\0' .. case.name
  call('HSET', STATE, 'newest:' .. row, int(claimed) .. ' ' .. int(released))
  if case.first then call('ZADD', NEWEST, 0, row) end
end

-- Those of these names that are wrongly missing: a resource is made only where none can have been. What is not there
-- while a part of it, or of the others, is was lost, and somebody may own it.
local function lost(names)
  if not names[1] then return nil end
  -- Where one was ever made there are names, and where none was nothing can be about one.
  local made, traces = meta[5], {NAMES, HELD, QUEUE, HISTORY}
  if made and call('EXISTS', NAMES) == 0 or not made and call('EXISTS', unpack(traces)) > 0 then
    return names[1], 'all resources'
  end
  local seats = {}
  for index, name in ipairs(names) do seats[index] = name .. '\0' .. '0' end
  local known, seated = call('ZMSCORE', NAMES, unpack(names)), fields('seat:', seats)
  for index, name in ipairs(names) do
    if known[index] or seated[index] then return name, 'its record' end
  end
end

-- Finds all that the request is about, by name, and reads of it whatever could turn out to be damaged: nothing has been
-- written when it says so. Of the resources in `whole` all seats are needed, and FIRST_LOOK rows of the queue.
local function gather(names, whole)
  probe()
  local cases, found, asked = {}, find_all(names), newest(names)
  local missing, people, apart, waits = {}, {}, {}, {}
  for index, name in ipairs(names) do
    local resource, numbers = found[name], asked[index]
    local case = {name = name, resource = resource, claimed = numbers[1], released = numbers[2], first = numbers.first}
    if not case.claimed then return nil, damaged(name, 'what was last asked for') end
    if resource then
      if whole[name] then seats_of(resource) end
      if resource.damage then return nil, damaged(name, resource.damage) end
      local page = waiting(resource, nil, whole[name] and FIRST_LOOK or wakeable(resource))
      case.seat, case.page = seat_of(resource, lease), page
      for index, waiter in ipairs(page.leases) do
        if waiter == lease then case.place = page.places[index] end
        people[#people + 1] = waiter
      end
      if not case.seat and not case.place then
        apart[#apart + 1] = name
        waits[#waits + 1] = case
      end
      for _, seat in ipairs(resource.seats or {}) do
        if seat.lease then people[#people + 1] = seat.lease end
      end
      -- Not those of many large ones at once: they are read again when it is their turn.
      if #names > 1 and resource.count > FEW then
        resource.seats, resource.apart = nil, case.seat
      end
    else
      missing[#missing + 1] = name
    end
    cases[name] = case
  end
  for index, place in ipairs(fields('place:' .. lease .. '\0', apart)) do
    if place == '' then place = nil end
    if place and (#place ~= 42 or not match(place, '^%d+$')) then
      return nil, damaged(apart[index], 'a place in its queue')
    end
    waits[index].place = place or nil
  end
  prefetch(people)
  return cases, nil, missing
end

-- The names in the request, of which each has `parts`.
local function names_asked(parts)
  local names = {}
  for index = FIRST, #ARGV, parts do names[#names + 1] = ARGV[index] end
  return names
end

-- What was gathered of a resource, once: one that is named twice is looked at again.
local function take(cases, name, whole)
  local case = cases[name]
  cases[name] = nil
  return case or gather({name}, whole)[name]
end

-- Of an owner only the seat is left: somebody deleted or evicted the record of its lease. As far as anybody knows it
-- lives, so it is given the longest time that it can still have.
local function adopt(owner)
  expiries[owner] = now + math.floor(longest / 1000)
  call('HSET', STATE, 'until:' .. owner, int(expiries[owner]))
  call('ZADD', LEASES, int(expiries[owner]), owner)
  if not about(owner) then
    local row = int(longest) .. ' ' .. time .. ' - ?'
    call('HSET', STATE, 'lease:' .. owner, row)
    learn(owner, row)
  end
end

-- Frees the tickets of owners that are dead. Says whether any was freed.
local function reap(resource, judged)
  local reaped, held = false, {}
  prefetch(owners_of(resource))
  for _, seat in ipairs(seats_of(resource)) do
    if seat.lease and not lives(seat.lease, judged) then held[#held + 1] = seat end
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
  return reaped
end

-- Goes through the queue from its head on: forgets a few dead waiters, and counts the living before `place`. Behind the first
-- 500, if `enough` of them live, and behind too many dead ones all who wait are counted.
local function look(resource, page, place, enough, judged)
  local ahead, cleared, looked, most = 0, 0, 0, FIRST_LOOK
  while true do
    local places = page.places
    prefetch(page.leases)
    for index, waiter in ipairs(page.leases) do
      if lives(waiter, judged) then
        if place and places[index] < place then ahead = ahead + 1 end
      elseif cleared < MOST_CLEARED then
        judge(waiter, judged)
        leave_place(resource, waiter, places[index])
        cleared = cleared + 1
      end
    end
    looked = looked + page.count
    if page.count < most or not place or place <= (places[#places] or '') then return ahead end
    if (ahead >= enough and looked > LOOK) or looked >= MOST_LOOKED then
      return ahead + call('ZLEXCOUNT', QUEUE, '(' .. page.last, '(' .. resource.name .. '\0' .. place)
    end
    most = LOOK
    page = waiting(resource, page.last, most)
  end
end

-- How long there are no grants still. A quarantine that is over stays over, also when `longest` grows.
local function quarantine_left(judged)
  if not quarantine then return nil end
  local till = quarantine + math.floor(longest / 1000)
  if till <= judged then
    quarantine = nil
    call('HDEL', STATE, 'quarantine', 'from')
    return nil
  end
  return math.min(math.max(till - vouched, 0) * 1000, longest)
end

-- How many more owners there may be, since when the latest of the free tickets is free, and the lowest free seat.
local function vacancy(resource)
  local free, freed_at, lowest = resource.tickets, 0, nil
  for _, seat in ipairs(seats_of(resource)) do
    if seat.lease then
      free = free - 1
    elseif seat.ticket < resource.tickets then
      freed_at = math.max(freed_at, seat.since)
      lowest = lowest or seat
    end
  end
  return math.max(free, 0), freed_at, lowest
end

-- Whether a waiter with `ahead` live ones before it may take a ticket: 'now', 'taken', or from when on. A matter of
-- order, not of life, so the store's own clock is good enough.
local function turn(free, freed_at, lowest, ahead, step)
  if not lowest or free == 0 then return 'taken' end
  if ahead < free then return 'now' end
  local at = freed_at + math.floor(step * math.min(ahead - free + 1, MOST_STEPS) / 1000)
  return at <= now and 'now' or at
end

-- How long until the first of the owners would be dead.
local function first_to_end(resource)
  local first
  local owners = owners_of(resource)
  for index, row in ipairs(fields('lease:', owners)) do
    local owner = owners[index]
    -- Where the caller's judgement lags behind, the span would be longer than any lease: looking once per ttl
    -- finds out when they agree again.
    local ttl = tonumber(match(row or '', '^%d+') or longest)
    local at = expiry(owner) or ending(owner, vouched)
    local left = math.min(math.max(at - vouched, 0) * 1000, ttl)
    first = math.min(first or left, left)
  end
  return first or 0
end

local function grant(resource, seat)
  resource.term = resource.term + 1
  resource.token = math.max(resource.token + 1, now)
  resource.changed = true
  seat.lease, seat.since, seat.term, seat.token = lease, now, int(resource.term), int(resource.token)
  touch(resource, seat)
  call('ZADD', HELD, 0, lease .. '\0' .. resource.name .. '\0' .. int(seat.ticket) .. ' ' .. seat.token)
  drop_notices(resource.name)
  record(resource, about(lease).label, seat, 'granted', now)
  return {'granted', int(seat.ticket), seat.term, seat.token}
end

-- Grants what the worker holds already (`owned`), or what it may take now; else queues it once, and says when to look
-- again. `place` is where it waits, if it does.
local function grant_or_queue(resource, owned, place, page, judged, priority)
  local left, me, waits = quarantine_left(judged), about(lease), place ~= nil
  local free, freed_at, lowest = vacancy(resource)
  -- An owner that asks again during a quarantine has no place in the queue, and needs none.
  if not owned and not waits then place = next_place(resource, 0, priority) end
  local ahead = look(resource, page, not owned and place or nil, free + MOST_STEPS, judged)
  if owned and not left then return {'granted', int(owned.ticket), owned.term, owned.token} end
  local at = turn(free, freed_at, lowest, ahead, me.step)
  -- One that came late may be from a lease that has run out since, which it is not to judge.
  if not left and at == 'now' and lives(lease, vouched) then
    if waits then leave_place(resource, lease, place) end
    return grant(resource, lowest)
  end
  if not owned and not waits then take_place(resource, lease, place) end
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
