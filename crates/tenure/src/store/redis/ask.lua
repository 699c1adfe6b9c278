-- ask(resource, token, successor): the operator's wish that this ownership be handed over gently. The successor, if
-- one is named, must be waiting; of two with one label the earlier is meant; it goes to the head. Marks nobody.
local token, successor = ARGV[2], ARGV[3]
local resource = find(ARGV[1])
local tenant, others = under(resource, token)
if not tenant then return answer('other-owners', others) end
if successor ~= '' then
  local named
  for _, waiter in ipairs((waiters(resource))) do
    if lives(waiter, now) and about(waiter).label == successor then
      named = waiter
      break
    end
  end
  if not named then return answer('not-waiting') end
  local priority = priority_of(place_of(resource, named))
  leave_queue(resource, named)
  take_place(resource, named, next_place(resource, resource.arrivals + 1, priority))
  save(resource)
end
notify(resource, tenant, 1)
return answer('done')
