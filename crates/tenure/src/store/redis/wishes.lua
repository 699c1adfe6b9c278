-- The ownership under `token`, or the tokens of those who own instead. One whose lease is marked dead is over.
-- Follows the tickets.
local function under(resource, token)
  local others = {}
  for _, seat in ipairs(resource and resource.seats or {}) do
    if seat.lease and expiry(seat.lease) then
      if seat.token == token then return seat end
      others[#others + 1] = seat.token
    end
  end
  return nil, others
end
