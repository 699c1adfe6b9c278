-- release(lease, seq, judged_by, longest, seen, {resource, how}...): as of seq the worker holds and wants nothing of these.
-- Frees the ticket, leaves the queue, wakes whoever comes next. One that is not above the newest claim or release is
-- stale. `stepped-down` queues the worker again in the same step, at the tail, and is answered like a claim. Runs
-- also at the memory limit. If one of the resources is damaged nothing is written of any.
runs_at_the_limit()
local judged = begin()
if not judged then return answer('gone') end

local whole = {}
for index = FIRST, #ARGV, 2 do
  if ARGV[index + 1] == 'stepped-down' then whole[ARGV[index]] = true end
end
local cases, trouble = gather(names_asked(2), whole)
if not cases then return trouble end

-- The lowest priority of those who wait and live: looked for from the tail, because those who come first have a higher
-- one, but for the few whom an operator named. `page` is the first one of the queue.
local function lowest_priority(resource, page)
  local from, name = '[' .. resource.name .. '\0', '(' .. resource.name
  local lowest, to, looked, most = nil, name .. '\1', 0, LOOK
  local function consider(page)
    prefetch(page.leases)
    for index, waiter in ipairs(page.leases) do
      local priority = priority_of(page.places[index])
      if lives(waiter, judged) then lowest = math.min(lowest or priority, priority) end
    end
  end
  if page.count < FIRST_LOOK then
    consider(page)
    return lowest or 0
  end
  repeat
    page = page_of(resource, call('ZREVRANGEBYLEX', QUEUE, to, from, 'LIMIT', 0, most))
    consider(page)
    looked, to = looked + page.count, '(' .. (page.last or '')
  until lowest or page.count < most or looked >= MOST_LOOKED
  consider(page_of(resource, call('ZRANGEBYLEX', QUEUE, from, name .. '\0' .. '9007199254740991', 'LIMIT', 0, MOST_LOOKED)))
  return lowest or 0
end

-- Queues the worker at the tail, with the lowest priority of those who wait and live. Says where.
local function queue_last(resource, page)
  local place = next_place(resource, 0, lowest_priority(resource, page))
  take_place(resource, lease, place)
  return place
end

local function release_one(case, how)
  -- A claim forbids older releases, too: a store that forgot the release, but not the claim after it, must not free
  -- what was granted since.
  if seq <= case.claimed or seq <= case.released then return {'stale'} end
  set_newest(case, case.claimed, seq)
  drop_notices(case.name)
  local resource, seat = case.resource, case.seat
  if not resource then return {'free'} end
  if case.place then leave_place(resource, lease, case.place) end
  if seat then vacate(resource, seat, now, how) end
  local said, page = {'free'}, case.page
  if how == 'stepped-down' then
    if case.place then page = waiting(resource, nil, FIRST_LOOK) end
    local place = queue_last(resource, page)
    reap(resource, judged)
    said = grant_or_queue(resource, nil, place, page, judged, 0)
    page = nil
  end
  save(resource)
  if seat then wake(resource, lease, judged, page) end
  return said
end

local said = {}
for index = FIRST, #ARGV, 2 do
  said[#said + 1] = release_one(take(cases, ARGV[index], whole), ARGV[index + 1])
end
return answer('released', said)
