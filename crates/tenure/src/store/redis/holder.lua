-- Who acts as the owner of a resource. Follows the tickets.
local lease, name, token = ARGV[1], ARGV[2], ARGV[3]

-- The ticket that the lease holds under exactly this token, if it lives by the store's clock. Or what is damaged.
local function ticket_held()
  if not lives(lease, now) or not about(lease) then return nil end
  local resource = find(name)
  if not resource then return nil end
  local seat = not resource.damage and seat_of(resource, lease)
  if resource.damage then return nil, damaged(name, resource.damage) end
  return seat and seat.token == token and seat.ticket or nil
end
