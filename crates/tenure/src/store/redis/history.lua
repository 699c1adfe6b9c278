-- history(resource, after, from): what happened, in pieces. First the endings that nobody has come across yet, of one
-- resource, or of up to 250 in the order of their names from the one that follows `after` on ('.' when that is
-- done: no more of them). Then up to 1000 entries as they were written down, from the id `from` on. Answers with
-- where to go on; '' for `from` when all was told. Marks nobody.
local PAGE, ENTRIES = 250, 1000
local wanted, after, from = ARGV[1], ARGV[2], ARGV[3]
local endings, entries = {}, {}

local function unwritten(name)
  local resource = find(name)
  for _, seat in ipairs(resource and resource.seats or {}) do
    local known = seat.lease and not lives(seat.lease, now) and about(seat.lease)
    if known then
      local at, why = ending(seat.lease, now)
      endings[#endings + 1] = {
        int(math.max(at, seat.since)), why, name, known.label, int(seat.ticket), seat.term, seat.token,
      }
    end
  end
end

if after ~= '.' and wanted ~= '' then
  unwritten(wanted)
  after = '.'
elseif after ~= '.' then
  for _ = 1, PAGE do
    after = next_name(after)
    if after == '' then
      after = '.'
      break
    end
    unwritten(after)
  end
end
if after == '.' then
  local page = call('XRANGE', HISTORY, from, '+', 'COUNT', ENTRIES)
  from = #page == ENTRIES and '(' .. page[#page][1] or ''
  for _, entry in ipairs(page) do
    local fields = entry[2]
    if wanted == '' or fields[6] == wanted then
      entries[#entries + 1] = {fields[2], fields[4], fields[6], fields[8], fields[10], fields[12], fields[14]}
    end
  end
end
return answer(after, from, endings, entries)
