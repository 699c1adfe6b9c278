-- What every operation begins with: the keys, the time, which life of the server this is, and the one judgement of
-- life. The rules are those of `tenure_core::Ledger`.
--
-- Everything of a namespace lives in these few keys, whatever the number of leases and resources, so that each
-- operation can declare all that it may touch. None of them has a TTL. Where a key holds rows about pairs it is a
-- sorted set with all scores 0, ordered by its text: the parts of a row are separated by \0, which no name contains.
-- Times are in microseconds, spans in nanoseconds; all numbers are whole and below 2^53.
local META = KEYS[1]      -- hash: run (the server's life), quarantine (since when), from (out of which life), longest,
                          -- made (whether a resource was)
local LEASES = KEYS[2]    -- sorted set: lease -> when it expires, of all that are not marked dead
local DETAILS = KEYS[3]   -- hash: lease -> ttl, when it was opened, its channel, its label; lease# -> newest renewal
local METADATA = KEYS[4]  -- hash: lease -> what its worker tells
local NAMES = KEYS[5]     -- rows: resource
local ENDED = KEYS[6]     -- hash: lease -> when and why it was marked dead
local GONE = KEYS[7]      -- sorted set: lease -> when it ended, of those that hold nothing any more
local NEWEST = KEYS[8]    -- rows: lease \0 resource \0 newest claim, newest release
local NOTICES = KEYS[9]   -- rows: lease \0 resource \0 token, wish
local HELD = KEYS[10]     -- rows: lease \0 resource \0 ticket, token
local RESOURCES = KEYS[11] -- hash: resource -> tickets, who set them (opened at, lease, seq), arrivals, term, token, seats
local SEATS = KEYS[12]    -- hash: resource \0 ticket -> since when, and of one that is held lease, term, token
local QUEUE = KEYS[13]    -- rows: resource \0 place, lease
local PLACES = KEYS[14]   -- hash: lease \0 resource -> place
local HISTORY = KEYS[15]  -- stream, capped

-- Before 7.0 a script that asks for the time has to say that its effects are replicated, and not itself.
if redis.replicate_commands then redis.replicate_commands() end

local call, format, match, sub = redis.call, string.format, string.match, string.sub

-- Lua would print 1763228625123500 as 1.7632286251235e+15.
local function int(number)
  return format('%.0f', number)
end

local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]
if now >= 7258118400000000 then
  return redis.error_reply('TENURECLOCK the clock of the server is beyond the year 2200')
end

-- Which life this is. A server chooses its replication id anew with each start, with or without its data, and whenever
-- it becomes a primary, also where its process was one before: what it was as a replica comes from another. The answer has to
-- be that of the server that runs this, so it is asked here.
local replication = call('INFO', 'replication')
if not string.find(replication, '\nrole:master', 1, true) then
  return redis.error_reply('READONLY it has become a replica')
end
local _, last = string.find(replication, '\nmaster_replid:', 1, true)
if not last then
  return redis.error_reply('TENURELIFE the server does not tell its master_replid')
end
local run = sub(replication, last + 1, last + 32)
local meta = call('HMGET', META, 'run', 'quarantine', 'longest', 'from', 'made')
local quarantine = meta[2] and tonumber(meta[2])
local longest = tonumber(meta[3] or '0')

-- What every answer carries.
local function answer(...)
  return {int(now), run, int(longest), ...}
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
  call('HDEL', META, '-')
end

-- Whether the server can show that it has not lost our data within the last `longest`.
local function had_nothing_to_lose()
  local uptime = tonumber(match(call('INFO', 'server'), 'uptime_in_seconds:(%d+)') or '0')
  if uptime * 1000000000 < longest + 2000000000 then return false end
  if call('EXISTS', LEASES, DETAILS, ENDED, RESOURCES, SEATS, QUEUE, HISTORY) > 0 then return false end
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
  call('HSET', META, 'quarantine', int(now), 'from', from)
end

-- Notices a new life of the server, a caller that was with another one within the last `longest` (`seen`), and what it
-- knows of the longest ttl. Who comes from another life makes a quarantine, unless one stands because of that life: what it
-- was granted there is not known here, as when an old primary is reached again.
local function see(heard, seen)
  if heard > longest then
    longest = heard
    call('HSET', META, 'longest', int(longest))
  end
  if meta[1] ~= run then
    if meta[1] or not had_nothing_to_lose() then begin_quarantine(meta[1] or '') end
    call('HSET', META, 'run', run)
  end
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

-- Marks the lease dead, and with it its notices and what it last asked for.
local function finish(lease, at, why)
  expiries[lease] = false
  call('HSET', ENDED, lease, int(at) .. ' ' .. why)
  call('ZREM', LEASES, lease)
  drop_rows(NEWEST, lease)
  drop_rows(NOTICES, lease)
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
  local found = call('HMGET', DETAILS, lease, lease .. '#')
  return match(found[1] or '', '^%d+ %d+ %S+ .*$'), tonumber(found[2] or '0') or 0
end
