-- claim(lease, seq, judged_by, longest, seen, {resource, tickets, priority}...): per resource, a ticket that this waiter
-- may take now, under the next term and a larger token; the same grant again for an owner; else a place in the queue,
-- and when to look again. Owners whose lease is dead are reaped. Older claims, and repeated ones of what was taken
-- away since, are stale. If one of the resources is damaged nothing is written of any.
--
-- All owners are looked at, because each of them may be dead; of a queue as much as the decision needs.
local judged = begin()
if not judged then return answer('gone') end

local names, whole = names_asked(3), {}
for _, name in ipairs(names) do whole[name] = true end
local cases, trouble, missing = gather(names, whole)
if not cases then return trouble end
local name, what = lost(missing)
if name then return damaged(name, what) end

local function make(name, tickets)
  local resource = {
    name = name, tickets = tickets, count = 0, arrivals = 0, term = 0, token = 0, changed = true,
    set_at = about(lease).opened_at, set_by = lease, set_seq = seq, seats = {}, touched = {}, dropped = {},
  }
  if not meta[5] then
    meta[5] = '1'
    call('HSET', STATE, 'made', '1')
  end
  call('ZADD', NAMES, 0, name)
  extend(resource)
  return resource
end

-- Changes the number of tickets, if this claim may: of two leases the one that was opened later counts, of one
-- lease the later claim. Says whether it did.
local function resize(resource, tickets)
  local opened_at = about(lease).opened_at
  if not (opened_at > resource.set_at or (lease == resource.set_by and seq > resource.set_seq)) then return false end
  resource.set_at, resource.set_by, resource.set_seq = opened_at, lease, seq
  local changed = resource.tickets ~= tickets
  resource.tickets, resource.changed = tickets, true
  trim(resource)
  extend(resource)
  return changed
end

local function claim_one(case, tickets, priority)
  local resource, seat, place = case.resource, case.seat, case.place
  -- A repetition may ask again for what was given, not for what was taken away since; and what it vouches for may
  -- be outdated, as with any late request.
  local repeated = seq == case.claimed
  if seq < case.claimed or seq <= case.released or (repeated and not seat and not place) then return {'stale'} end
  local judged = repeated and 0 or judged
  set_newest(case, seq, case.released)
  local resized = false
  if resource then
    resized = resize(resource, tickets)
  else
    resource = make(case.name, tickets)
  end
  if resized then
    for _, owned in ipairs(seats_of(resource)) do
      if owned.lease and owned.ticket >= resource.tickets then notify(resource, owned, 0) end
    end
  end
  local reaped = reap(resource, judged)
  local page = case.page or page_of(resource, {})
  local said = grant_or_queue(resource, seat, place, page, judged, priority)
  save(resource)
  if reaped or resized then wake(resource, lease, judged) end
  return said
end

local said = {}
for index = FIRST, #ARGV, 3 do
  local case = take(cases, ARGV[index], whole)
  said[#said + 1] = claim_one(case, tonumber(ARGV[index + 1]), tonumber(ARGV[index + 2]))
end
return answer('claimed', said)
