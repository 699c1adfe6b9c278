-- close(lease, why): ends the lease in one step; every ticket and place in a queue goes with it, and is reaped when
-- next looked at. Wakes the heads of at most 250 of the resources that it held; those that are damaged are left out, and
-- named. Closing a dead one changes nothing. Runs also at the memory limit.
local lease, why = ARGV[1], ARGV[2]
local expires_at = expiry(lease)
if not expires_at then return answer('closed', {}) end
probe()
runs_at_the_limit()
local names, left_out = {}, {}
for _, row in ipairs(rows(HELD, lease, 250)) do
  names[#names + 1] = match(row, '^%x+%z(%Z+)%z')
end
local found = find_all(names)
finish(lease, math.min(now, expires_at), why)
for _, name in ipairs(names) do
  local resource = found[name]
  if resource and not resource.damage then wake(resource, nil, now) end
  if not resource or resource.damage then left_out[#left_out + 1] = name end
end
return answer('closed', left_out)
