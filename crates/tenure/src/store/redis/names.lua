-- The name of the resource that follows, in order; '' after the last. Every resource has a seat at least. Follows the
-- tickets.
local function next_name(after)
  local from = after == '' and '-' or '(' .. after .. '\1'
  local row = call('ZRANGEBYLEX', SEATS, from, '+', 'LIMIT', 0, 1)[1]
  return row and match(row, '^(%Z+)%z') or ''
end
