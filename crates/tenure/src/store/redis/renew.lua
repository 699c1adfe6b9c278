-- renew(lease, seq, judged_by, longest, seen): extends a live lease, and tells what stands for its worker. Never
-- re-creates one. A late or repeated one is stale before it judges anything. Runs also at the memory limit.
local lease, seq = ARGV[1], tonumber(ARGV[2])
runs_at_the_limit()
see(tonumber(ARGV[4]), ARGV[5])
local details, renewed = details_of(lease)
if expiry(lease) and seq <= renewed then return answer('stale') end
if not details or not judge(lease, vouched_for(ARGV[3])) then return answer('gone') end

local ttl = tonumber(match(details, '^%d+'))
local notices = rows(NOTICES, lease, 65)
for index, row in ipairs(notices) do
  notices[index] = sub(row, #lease + 2)
end
local expires_at = int(now + math.floor(ttl / 1000))
call('HSET', STATE, 'renewed:' .. lease, ARGV[2], 'until:' .. lease, expires_at)
call('ZADD', LEASES, expires_at, lease)
return answer('kept', notices)
