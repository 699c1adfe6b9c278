-- Goes through the resources in the order of their names, so many rows at a time. Follows the tickets.
local ROWS = 2000   -- what one answer tells, or looks at: no script holds up the others for long
local PIECE = 250   -- names, seats or waiters that are read at a time
local left = ROWS
local left_out = {} -- names of damaged ones

-- The seats of a resource from this ticket on, a piece of them; nothing when one of them is damaged.
local function some_seats(resource, ticket)
  local seats = resource.seats or read_seats(resource, ticket, PIECE)
  return not resource.damage and seats or nil
end

-- Calls `visit` with each of the resources from where `cursor` points to, as long as there are rows left: with the
-- resource and how far it was told already. It answers how far it came, or nothing when all of it is told. Says where to
-- go on: NAME \0 and how far; '' when all were told. Of one that is damaged the name is left in `left_out`.
local function walk(wanted, cursor, visit)
  local name, part = match(cursor, '^(%Z*)%z(.*)$')
  name, part = name or '', part or ''
  while true do
    local names
    if part ~= '' then
      names = {name}
    elseif wanted ~= '' then
      names = name == '' and {wanted} or {}
    else
      names = call('ZRANGEBYLEX', NAMES, name == '' and '-' or '(' .. name, '+', 'LIMIT', 0, PIECE)
    end
    if not names[1] then return '' end
    local found = find_all(names)
    for _, next_name in ipairs(names) do
      if left <= 0 then return name .. '\0' .. part end
      local resource = found[next_name]
      left = left - 1
      local further = resource and not resource.damage and visit(resource, part) or ''
      if further ~= '' then return next_name .. '\0' .. further end
      if (resource and resource.damage) or (not resource and wanted == '') then
        left_out[#left_out + 1] = next_name
      end
      name, part = next_name, ''
    end
  end
end
