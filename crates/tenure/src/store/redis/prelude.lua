-- What most operations need: what can be said of leases, and the one judgement of life. Follows the head.
local AT_ONCE = 4000 -- values that one command takes: Lua's stack holds 8000

-- What may only be written to, later: a key of another kind is an error here already, before anything is written.
local function probe()
  for _, key in ipairs({LEASES, QUEUE, HELD, NOTICES, GONE, NEWEST}) do call('ZSCORE', key, '') end
  call('HGET', ENDED, '')
  call('XLEN', HISTORY)
end

-- All rows that begin with `prefix`.
local function rows(key, prefix, limit)
  local from, to = '[' .. prefix .. '\0', '(' .. prefix .. '\1'
  if limit then
    return call('ZRANGEBYLEX', key, from, to, 'LIMIT', 0, limit)
  end
  return call('ZRANGEBYLEX', key, from, to)
end

local function drop_rows(key, prefix)
  call('ZREMRANGEBYLEX', key, '[' .. prefix .. '\0', '(' .. prefix .. '\1')
end

-- Makes what follows run also at the memory limit: Redis stops a script there only before its first write, and this
-- is one that takes no memory.
local function runs_at_the_limit()
  call('HDEL', STATE, '-')
end

-- Whether the server can show that it has not lost our data within the last `longest`. Nothing may have been written yet.
local function had_nothing_to_lose()
  local uptime = tonumber(match(call('INFO', 'server'), 'uptime_in_seconds:(%d+)') or '0')
  if uptime * 1000000000 < longest + 2000000000 then return false end
  if call('EXISTS', unpack(KEYS)) > 0 then return false end
  if not string.find(call('INFO', 'stats'), 'evicted_keys:0\r', 1, true) then return false end
  -- A slot may come to a node, or a replica be promoted, without any command.
  if not string.find(call('INFO', 'cluster'), 'cluster_enabled:0', 1, true) then return false end
  local counts = call('INFO', 'commandstats')
  for _, command in ipairs({
    'flushall', 'flushdb', 'swapdb', 'replicaof', 'slaveof', 'failover', 'config|resetstat',
    'config', -- before 7.0 all of its subcommands were counted as one
  }) do
    local _, last = string.find(counts, 'cmdstat_' .. command .. ':calls=', 1, true)
    if last and sub(counts, last + 1, last + 2) ~= '0,' then return false end
  end
  return true
end

-- No grants from now on, because of what the life `from` may have granted.
local function begin_quarantine(from)
  quarantine, meta[4] = now, from
  call('HSET', STATE, 'quarantine', time, 'from', from)
end

-- Notices a new life of the server, a caller that was with another one within the last `longest` (`seen`), and what it
-- knows of the longest ttl. Who comes from another life makes a quarantine, unless one stands because of that life: what it
-- was granted there is not known here, as when an old primary is reached again.
local function see(heard, seen)
  local more = heard > longest
  if more then longest, meta[3] = heard, int(heard) end
  if meta[1] ~= run then
    if meta[1] or not had_nothing_to_lose() then begin_quarantine(meta[1] or '') end
    call('HSET', STATE, 'run', run)
  end
  if more then call('HSET', STATE, 'longest', meta[3]) end
  if seen ~= run and seen ~= '' then
    local stands = quarantine and quarantine + math.floor(longest / 1000) > now
    if not stands or meta[4] ~= seen then begin_quarantine(seen) end
  end
end

-- When each lease expires, as far as it was asked; false of one that is marked dead or unknown.
local expiries = {}

local function expiry(lease)
  local at = expiries[lease]
  if at == nil then
    at = call('ZSCORE', LEASES, lease)
    at = at and tonumber(at)
    expiries[lease] = at
  end
  return at
end

-- Whether the lease lives as of `judged`. Marks nobody.
local function lives(lease, judged)
  local at = expiry(lease)
  return at and at > judged
end

-- From here on the lease can be forgotten, if it holds nothing.
local function let_go(lease, at)
  if not rows(HELD, lease, 1)[1] then
    call('ZADD', GONE, int(at), lease)
  end
end

-- Forgets what the lease last asked for, and what stands for its worker.
local function drop_requests(lease)
  local fields = {'noticed:' .. lease, 'until:' .. lease}
  for _, row in ipairs(rows(NEWEST, lease)) do
    if #fields == AT_ONCE then
      call('HDEL', STATE, unpack(fields))
      fields = {}
    end
    fields[#fields + 1], fields[#fields + 2] = 'newest:' .. row, 'place:' .. row
  end
  call('HDEL', STATE, unpack(fields))
  drop_rows(NEWEST, lease)
  drop_rows(NOTICES, lease)
end

-- Marks the lease dead.
local function finish(lease, at, why)
  expiries[lease] = false
  call('HSET', ENDED, lease, int(at) .. ' ' .. why)
  call('ZREM', LEASES, lease)
  drop_requests(lease)
  let_go(lease, at)
end

-- Whether the lease lives as of `judged`; one that is found run out is marked dead: death is stable from here on.
local function judge(lease, judged)
  local at = expiry(lease)
  if at and at <= judged then
    finish(lease, at, 'expired')
    return false
  end
  return at and true
end

-- The store's clock, as far as the caller's own can vouch for it.
local function vouched_for(judged_by)
  if judged_by == '' then return now end
  return math.min(tonumber(judged_by), now)
end

-- What was said when the lease was opened, and the number of its newest renewal. Nothing of what cannot be read: such a
-- lease is gone for its worker, and for the others it lives until it runs out.
local function details_of(lease)
  local found = call('HMGET', STATE, 'lease:' .. lease, 'renewed:' .. lease)
  return match(found[1] or '', '^%d+ %d+ %S+ .*$'), tonumber(found[2] or '0') or 0
end
