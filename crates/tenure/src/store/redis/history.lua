-- history(resource, cursor, from): what happened, in pieces. First the endings that nobody has come across yet, of one
-- resource or of all in the order of their names, about 2000 seats at a time (\0 when that is done: no name contains
-- it). Then up to 1000 entries as they were written down, from the id `from` on. Answers with where to go on; '' for `from`
-- when all was told. Damaged resources are left out, and named. Marks nobody.
local ENTRIES = 1000
local wanted, cursor, from = ARGV[1], ARGV[2], ARGV[3]
local endings, entries = {}, {}

-- The endings at this resource, from a ticket on. Says from which to go on, if some are left.
local function unwritten(resource, part)
  local ticket = tonumber(part ~= '' and part or 0)
  while ticket < resource.count do
    if left <= 0 then return int(ticket) end
    local seats, leases = some_seats(resource, ticket), {}
    if not seats then return '' end
    for _, seat in ipairs(seats) do
      if seat.lease then leases[#leases + 1] = seat.lease end
    end
    prefetch(leases)
    for _, seat in ipairs(seats) do
      if seat.lease and not lives(seat.lease, now) then
        local at, why = ending(seat.lease, now)
        at = int(math.max(at, seat.since))
        endings[#endings + 1] =
          entry(at, why, resource.name, label_of(seat.lease), seat.ticket, seat.term, seat.token)
      end
    end
    left, ticket = left - #seats, ticket + #seats
  end
  return ''
end

if cursor ~= '\0' then
  cursor = walk(wanted, cursor, unwritten)
  if cursor == '' then cursor = '\0' end
end
if cursor == '\0' then
  local page = call('XRANGE', HISTORY, from, '+', 'COUNT', ENTRIES)
  from = #page == ENTRIES and '(' .. page[#page][1] or ''
  for _, found in ipairs(page) do
    local entry = found[2][2]
    -- No name and no label contains \0.
    if wanted == '' or string.find(entry, '\0' .. wanted .. '\0', 1, true) then entries[#entries + 1] = entry end
  end
end
return answer(cursor, from, endings, entries, left_out)
