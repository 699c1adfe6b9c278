-- What every operation begins with: the keys, the time and which life of the server this is. The rules are those of
-- `tenure_core::Ledger`.
--
-- Everything of a namespace lives in these few keys, whatever the number of leases and resources, so that each
-- operation can declare all that it may touch. None of them has a TTL. Where a key holds rows about pairs it is a
-- sorted set with all scores 0, ordered by its text: the parts of a row are separated by \0, which no name contains.
-- Times are in microseconds, spans in nanoseconds; all numbers are whole and below 2^53.
local STATE = KEYS[1]      -- hash: what is looked up by its name, see below
local QUEUE = KEYS[2]      -- rows: resource \0 place, lease
local HELD = KEYS[3]       -- rows: lease \0 resource \0 ticket, token
local HISTORY = KEYS[4]    -- stream, capped: when, what, ticket, term, token \0 resource \0 worker
local LEASES = KEYS[5]     -- sorted set: lease -> when it expires, of all that are not marked dead
local NAMES = KEYS[6]      -- rows: resource
local ENDED = KEYS[7]      -- hash: lease -> when and why it was marked dead
local GONE = KEYS[8]       -- sorted set: lease -> when it ended, of those that hold nothing any more
local NEWEST = KEYS[9]     -- rows: lease \0 resource, of all that a lease has asked for: by these its fields are found
local NOTICES = KEYS[10]   -- rows: lease \0 resource \0 token, wish

-- The fields of STATE. They are in one hash because every command that a script calls takes longer than what it does.
--   run, quarantine, from  the server's life, since when there are no grants, because of which life
--   longest                the longest ttl
--   made, jobs             whether a resource, or a job, was ever made
--   lease:LEASE            ttl, when it was opened, its channel, its label
--   renewed:LEASE          its newest renewal
--   until:LEASE            what LEASES has of it, for those who have other fields to read anyway
--   noticed:LEASE          that rows in NOTICES may be about it
--   newest:LEASE\0NAME     the newest claim and the newest release of a resource by it
--   place:LEASE\0NAME      its place in the queue; empty where it has none any more
--   resource:NAME          tickets, who set them (opened at, lease, seq), arrivals, term, token, seats
--   seat:NAME\0TICKET      since when, and of one that is held lease, term, token

local LEAVES_TO_THE_NEXT = 100000000 -- the least that a waiter leaves to each one before it
local FIRST_LOOK = 32                -- rows of a queue that are read at first: mostly enough
local HISTORY_KEPT = '10000'

-- Before 7.0 a script that asks for the time has to say that its effects are replicated, and not itself.
if redis.replicate_commands then redis.replicate_commands() end

local call, format, match, sub = redis.call, string.format, string.match, string.sub

-- Lua would print 1763228625123500 as 1.7632286251235e+15.
local function int(number)
  return format('%.0f', number)
end

local clock = call('TIME')
local time = clock[1] .. sub('00000' .. clock[2], -6) -- as it is written down
local now = tonumber(time)
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

-- What is known of the life and of the leases as a whole.
local meta = call('HMGET', STATE, 'run', 'quarantine', 'longest', 'from', 'made')
local quarantine = meta[2] and (tonumber(meta[2]) or now) -- one that cannot be read has just begun
local longest = tonumber(meta[3] or '0')

-- What every answer carries.
local function answer(...)
  return {time, run, meta[3] or '0', ...}
end

-- What happened to an ownership, as it is written down.
local function entry(at, what, name, worker, ticket, term, token)
  return at .. ' ' .. what .. ' ' .. ticket .. ' ' .. term .. ' ' .. token .. '\0' .. name .. '\0' .. worker
end

local function write_down(entry)
  call('XADD', HISTORY, 'MAXLEN', '~', HISTORY_KEPT, '*', 'e', entry)
end
