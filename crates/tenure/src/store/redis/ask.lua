-- ask(resource, token, successor): the operator's wish that this ownership be handed over gently. The successor, if
-- one is named, must be waiting; of two with one label the earlier is meant; it goes to the head. Marks nobody.
local token, successor = ARGV[2], ARGV[3]
local resource = find(ARGV[1])
local tenant, others = under(resource, token)
if not tenant then return answer('other-owners', others) end
if successor ~= '' then
  local named
  for _, waiter in ipairs(waiters(resource)) do
    if lives(waiter.lease, now) and about(waiter.lease).label == successor then
      named = waiter
      break
    end
  end
  if not named then return answer('not-waiting') end
  leave_queue(resource, named.lease)
  take_place(resource, named.lease, resource.arrivals + 1, priority_of(named.place))
end
notify(resource, tenant, 1)
return answer('done')
