-- claim(lease, seq, judged_by, longest, {resource, tickets, priority}...): per resource, a ticket that this waiter may
-- take now, under the next term and a larger token; the same grant again for an owner; else a place in the queue,
-- and when to look again. Owners whose lease is dead are reaped. Older claims, and repeated ones of what was taken
-- away since, are stale.
local judged = begin()
if not judged then return answer('gone') end

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

local function claim_one(name, tickets, priority)
  local claimed, released, row = newest(name)
  local resource = find(name)
  -- A repetition may ask again for what was given, not for what was taken away since; and what it vouches for may
  -- be outdated, as with any late request.
  local repeated = seq == claimed
  local has_part = resource and (seat_of(resource, lease) or place_of(resource, lease))
  if seq < claimed or seq <= released or (repeated and not has_part) then return {'stale'} end
  local judged = repeated and 0 or judged
  set_newest(name, seq, released, row)
  local resized = false
  if resource then
    resized = resize(resource, tickets)
  else
    resource = make(name, tickets, lease, seq)
  end
  if resized then
    for _, seat in ipairs(resource.seats) do
      if seat.lease and seat.ticket >= resource.tickets then notify(resource, seat, 0) end
    end
  end
  local reaped, leases, found = reap(resource, judged)
  local said = grant_or_queue(resource, judged, priority, leases, found)
  save(resource)
  if reaped or resized then wake(resource, lease, judged) end
  return said
end

local said = {}
for index = 5, #ARGV, 3 do
  said[#said + 1] = claim_one(ARGV[index], tonumber(ARGV[index + 1]), tonumber(ARGV[index + 2]))
end
return answer('claimed', said)
