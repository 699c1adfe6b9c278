-- read(resource, after): owners and waiters of one resource, or, if none is named, of up to 250 in the order of
-- their names, from the one that follows `after` on. Those whose lease is over are left out. Marks nobody.
local PAGE = 250

local function view(name)
  local resource = find(name)
  if not resource then return nil end
  local owners, queue = {}, {}
  for _, seat in ipairs(resource.seats) do
    if seat.lease and lives(seat.lease, now) then
      owners[#owners + 1] = {
        about(seat.lease).label, call('HGET', METADATA, seat.lease) or '', int(seat.ticket), seat.term, seat.token,
        int(math.max(now - seat.since, 0)), int(expiry(seat.lease) - now),
      }
    end
  end
  for _, waiter in ipairs((waiters(resource))) do
    if lives(waiter, now) then
      queue[#queue + 1] = {
        about(waiter).label, call('HGET', METADATA, waiter) or '', int(expiry(waiter) - now),
      }
    end
  end
  return {name, int(resource.tickets), owners, queue}
end

if ARGV[1] ~= '' then return answer({view(ARGV[1])}, '') end
local views, after = {}, ARGV[2]
while #views < PAGE do
  after = next_name(after)
  if after == '' then break end
  views[#views + 1] = view(after)
end
return answer(views, after)
