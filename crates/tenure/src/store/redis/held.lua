-- held(lease): what this lease holds, by ticket and token, in the order of the names. Marks nobody.
local lease = ARGV[1]
if not expiry(lease) or not details_of(lease) then return answer('gone') end
local held = rows(HELD, lease)
for index, row in ipairs(held) do
  held[index] = sub(row, #lease + 2)
end
return answer('held', held)
