-- Lets what follows pass, and from then on nothing of an earlier owner of the same ticket. KEYS[1] holds the mark, and has
-- no TTL; ARGV[1] is the token. Both are decimal digits, compared by length first: exact, however large they are.
local mark, sent = redis.call('GET', KEYS[1]), ARGV[1]
if mark and (#mark > #sent or (#mark == #sent and mark > sent)) then
  return redis.error_reply('TENURESTALE ' .. mark)
end
if mark ~= sent then redis.call('SET', KEYS[1], sent) end
local keys, args = {}, {}
for index = 2, #KEYS do keys[index - 1] = KEYS[index] end
for index = 2, #ARGV do args[index - 1] = ARGV[index] end
