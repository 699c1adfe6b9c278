-- history(resource, before, most): the newest entries of one resource, or of all if it is empty, that are older than
-- the entry `before`, if that is not empty; newest first, each as id, when and text.
-- KEYS: the history, the history by resource.
local resource, before, most = ARGV[1], ARGV[2], tonumber(ARGV[3])
local entries = {}

local function add(id, entry)
  entries[#entries + 1] = {id, entry[2][4], entry[2][6]}
end

if resource == '' then
  local to = before == '' and '+' or '(' .. before
  for _, entry in ipairs(call('XREVRANGE', KEYS[1], to, '-', 'COUNT', most) or {}) do add(entry[1], entry) end
else
  local prefix = resource .. '\0'
  local to = before == '' and '(' .. resource .. '\1' or '(' .. prefix .. before
  for _, name in ipairs(call('ZREVRANGEBYLEX', KEYS[2], to, '[' .. prefix, 'LIMIT', 0, most)) do
    local id = string.sub(name, #prefix + 1)
    local entry = call('XRANGE', KEYS[1], id, id)[1]
    if entry then add(id, entry) end
  end
end
return {time, life, entries}
