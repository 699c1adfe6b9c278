-- ask(resource, token, successor): the operator's wish that this ownership be handed over gently. The successor, if
-- one is named, must be waiting; of two with one label the earlier is meant; it goes to the head. Marks nobody.
local successor = ARGV[3]
local tenant, others = under(ARGV[2])
if not tenant then return answer('other-owners', others) end

-- The first waiter with this label, and its place.
local function named(label)
  local page
  repeat
    page = waiting(resource, page and page.last, LOOK)
    prefetch(page.leases)
    learn_all(page.leases)
    for index, waiter in ipairs(page.leases) do
      if lives(waiter, now) and label_of(waiter) == label then return waiter, page.places[index] end
    end
  until page.count < LOOK
end

if successor ~= '' then
  local waiter, place = named(successor)
  if not waiter then return answer('not-waiting') end
  leave_place(resource, waiter, place)
  take_place(resource, waiter, next_place(resource, resource.arrivals + 1, priority_of(place)))
  save(resource)
end
notify(resource, tenant, 1)
return answer('done')
