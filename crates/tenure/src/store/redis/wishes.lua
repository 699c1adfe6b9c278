-- What an operator's wish is about. Follows the tickets.
probe()
local resource = find(ARGV[1])
if resource then seats_of(resource) end
if resource and resource.damage then return damaged(resource.name, resource.damage) end

-- The ownership under `token`, or the tokens of those who own instead. One whose lease is marked dead is over.
local function under(token)
  local others = {}
  if not resource then return nil, others end
  prefetch(owners_of(resource))
  for _, seat in ipairs(resource.seats) do
    if seat.lease and expiry(seat.lease) then
      if seat.token == token then return seat end
      others[#others + 1] = seat.token
    end
  end
  return nil, others
end
