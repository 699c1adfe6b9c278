-- What every operation begins with: the keys, the time and which life of the server this is. The rules are those of
-- `tenure_core::Ledger`.
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

local LEAVES_TO_THE_NEXT = 100000000 -- the least that a waiter leaves to each one before it
local FIRST_LOOK = 32                -- rows of a queue that are read at first: mostly enough
local HISTORY_KEPT = 10000

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

-- Writes down what happened to an ownership.
local function write_down(by, at, what, name, worker, ticket, term, token)
  return by('XADD', HISTORY, 'MAXLEN', '~', HISTORY_KEPT, '*', 'at', int(at), 'what', what, 'resource', name,
    'worker', worker, 'ticket', ticket, 'term', term, 'token', token)
end
