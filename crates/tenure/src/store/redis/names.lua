-- The name of the resource that follows, in order; '' after the last. Follows the tickets.
local function next_name(after)
  local from = after == '' and '-' or '(' .. after
  return call('ZRANGEBYLEX', NAMES, from, '+', 'LIMIT', 0, 1)[1] or ''
end
