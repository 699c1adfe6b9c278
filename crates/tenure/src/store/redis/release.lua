-- release(lease, seq, judged_by, longest, {resource, how}...): as of seq the worker holds and wants nothing of these.
-- Frees the ticket, leaves the queue, wakes whoever comes next. One that is not above the newest claim or release is
-- stale. `stepped-down` queues the worker again in the same step, at the tail, and is answered like a claim. Runs
-- also at the memory limit.
runs_at_the_limit()
local judged = begin()
if not judged then return answer('gone') end

-- Queues the worker at the tail, with the lowest priority of those who wait and live.
local function queue_last(resource)
  local leases, found = waiters(resource)
  local lowest
  prefetch(leases)
  for index, waiter in ipairs(leases) do
    if lives(waiter, judged) then
      local priority = priority_of(place_in(resource, found[index]))
      lowest = math.min(lowest or priority, priority)
    end
  end
  take_place(resource, lease, next_place(resource, 0, lowest or 0))
end

local function release_one(name, how)
  local claimed, released, row = newest(name)
  -- A claim forbids older releases, too: a store that forgot the release, but not the claim after it, must not free
  -- what was granted since.
  if seq <= claimed or seq <= released then return {'stale'} end
  set_newest(name, claimed, seq, row)
  drop_notices(name)
  local resource = find(name)
  if not resource then return {'free'} end
  leave_queue(resource, lease)
  local seat = seat_of(resource, lease)
  if seat then vacate(resource, seat, now, how) end
  local said = {'free'}
  if how == 'stepped-down' then
    queue_last(resource)
    local _, leases, found = reap(resource, judged)
    said = grant_or_queue(resource, judged, 0, leases, found)
  end
  save(resource)
  if seat then wake(resource, lease, judged) end
  return said
end

local said = {}
for index = 5, #ARGV, 2 do
  said[#said + 1] = release_one(ARGV[index], ARGV[index + 1])
end
return answer('released', said)
