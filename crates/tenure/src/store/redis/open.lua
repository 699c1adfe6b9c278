-- open(lease, seq, judged_by, longest, seen, ttl, channel, label, metadata): creates the lease, live until now + ttl.
-- Repeating it changes nothing, and marks nobody. The record of a dead lease is kept for an hour, so that a late
-- `open` cannot make it again; up to 8 that are older are forgotten here. One of which a part was lost is gone.
local lease, seq, ttl = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[6])
local METADATA = KEYS[11] -- hash: lease -> what its worker tells
probe()
call('HGET', METADATA, '')
see(math.max(tonumber(ARGV[4]), ttl), ARGV[5])

local HOUR = 3600000000

-- Forgets a few that died long ago. One that a resource still names is kept until that is looked at.
for _, old in ipairs(call('ZRANGEBYSCORE', GONE, '-inf', int(now - HOUR), 'LIMIT', 0, 8)) do
  call('ZREM', GONE, old)
  call('HDEL', STATE, 'lease:' .. old, 'renewed:' .. old)
  call('HDEL', METADATA, old)
  call('HDEL', ENDED, old)
end
-- And those that ran out as long ago, unnoticed, as far as the caller can vouch for it.
if ARGV[3] ~= '' then
  local long_ago, left = int(vouched_for(ARGV[3]) - HOUR), 8
  for _, old in ipairs(call('ZRANGEBYSCORE', LEASES, '-inf', long_ago, 'LIMIT', 0, 64)) do
    -- An owner is judged by those who claim what it owns.
    if left > 0 and old ~= lease and not rows(HELD, old, 1)[1] then
      finish(old, expiry(old), 'expired')
      left = left - 1
    end
  end
end

local known, renewed = details_of(lease)
if known then
  -- One that a later renewal has overtaken judges nobody.
  local judged = seq < renewed and 0 or vouched_for(ARGV[3])
  return answer(lives(lease, judged) and 'opened' or 'gone')
end
if expiry(lease) or call('HGET', ENDED, lease) or rows(HELD, lease, 1)[1] then return answer('gone') end
local expires_at = int(now + math.floor(ttl / 1000))
call('HSET', STATE, 'lease:' .. lease, ARGV[6] .. ' ' .. time .. ' ' .. ARGV[7] .. ' ' .. ARGV[8],
  'until:' .. lease, expires_at)
call('HSET', METADATA, lease, ARGV[9])
call('ZADD', LEASES, expires_at, lease)
return answer('opened')
