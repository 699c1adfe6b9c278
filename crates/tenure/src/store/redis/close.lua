-- close(lease, why): ends the lease in one step; every ticket and place in a queue goes with it, and is reaped when
-- next looked at. Wakes the heads of at most 250 of the resources that it held. Closing a dead one changes nothing.
-- Runs also at the memory limit.
local lease, why = ARGV[1], ARGV[2]
local expires_at = expiry(lease)
if not expires_at then return answer('closed') end
runs_at_the_limit()
local held = rows(HELD, lease, 250)
finish(lease, math.min(now, expires_at), why)
for _, row in ipairs(held) do
  local resource = find(match(row, '^%x+%z(%Z+)%z'))
  if resource then wake(resource, nil, now) end
end
return answer('closed')
