-- release(lease, seq, judged_by, longest, seen, resource, how) as it mostly is: one resource with one ticket, of a lease that
-- lives by the server's own clock, and nothing new, standing, damaged, deaf or dead in sight. Says nothing, and has written
-- nothing, where it is not: then release.lua is to say it, which says the same of these (but for a lease that only `until:`
-- knows, because somebody deleted LEASES: it lives here until its next renewal). Most hand-overs are of this kind, and
-- every command, key and function costs them: so it has no functions, no more keys than it needs, and passes on as text what it read as
-- text.
--
-- It does not ask which life of the server this is, and answers with the one that was noticed last: giving up is right in every
-- life, and whoever takes the ticket asks.
local STATE, QUEUE, HELD, HISTORY = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
-- Before 7.0 a script that asks for the time has to say that its effects are replicated, and not itself.
if redis.replicate_commands then redis.replicate_commands() end
local call, match, sub = redis.call, string.match, string.sub

local clock = call('TIME')
local time = clock[1] .. sub('00000' .. clock[2], -6)
local now = tonumber(time)
local lease, seq, name = ARGV[1], tonumber(ARGV[2]), ARGV[6]
local asked, newest, seat = lease .. '\0' .. name, 'newest:' .. lease .. '\0' .. name, 'seat:' .. name .. '\0' .. '0'
local found = call('HMGET', STATE, 'run', 'quarantine', 'longest', 'noticed:' .. lease, 'lease:' .. lease,
  'resource:' .. name, seat, newest, 'until:' .. lease)
local run, longest = found[1], found[3]
if ARGV[7] == 'stepped-down' or now >= 7258118400000000 then return false end
if not run or found[2] or not longest or found[4] then return false end
if (ARGV[5] ~= run and ARGV[5] ~= '') or tonumber(ARGV[4]) > tonumber(longest) then return false end
local label = match(found[5] or '', '^%d+ %d+ %S+ (.*)$')
if not label or not match(found[6] or '', '^1 %d+ %x+ %d+ %d+ %d+ %d+ 1$') then return false end
local holder, term, token = match(found[7] or '', '^%d+ (%x+) (%d+) (%d+)$')
local claimed, released = match(found[8] or '', '^(%d+) (%d+)$')
if holder ~= lease or not claimed or seq <= tonumber(claimed) or seq <= tonumber(released) then return false end
if (tonumber(found[9] or '') or 0) <= now then return false end

-- The first two who wait: the first may take the ticket now, the second is to look when it has not.
local queue = call('ZRANGEBYLEX', QUEUE, '[' .. name .. '\0', '(' .. name .. '\1', 'LIMIT', '0', '2')
if queue[1] then
  local fields, from = {}, #name + 2
  for index, row in ipairs(queue) do
    local waiter = sub(row, from + 43)
    if #row ~= from + 74 or waiter == lease then return false end
    fields[2 * index - 1], fields[2 * index] = 'until:' .. waiter, 'lease:' .. waiter
  end
  local about = call('HMGET', STATE, unpack(fields))
  local channels, spans = {}, {}
  for index = 1, #queue do
    local ttl, channel = match(about[2 * index] or '', '^(%d+) %d+ (%S+) ')
    if not ttl or (tonumber(about[2 * index - 1] or '') or 0) <= now then return false end
    channels[index] = channel
    spans[index] = index > 1 and string.format('%.0f', math.max(100000000, math.floor(ttl / 150))) or '0'
  end
  -- Who does not listen is passed over, and that is not usual. A hint too many does no harm.
  for index, channel in ipairs(channels) do
    if call('PUBLISH', channel, spans[index] .. ' ' .. name) == 0 then return false end
  end
end

-- The first writes: of a key of another kind the other is to say it. The first takes no memory, so that what follows
-- runs also at the memory limit.
local row = asked .. '\0' .. '0 ' .. token
local dropped = redis.pcall('ZREM', HELD, row)
if type(dropped) == 'table' then return false end
local ended = time .. ' ' .. ARGV[7] .. ' 0 ' .. term .. ' ' .. token .. '\0' .. name .. '\0' .. label
if type(redis.pcall('XADD', HISTORY, 'MAXLEN', '~', '10000', '*', 'e', ended)) == 'table' then
  if dropped == 1 then call('ZADD', HELD, '0', row) end
  return false
end
call('HSET', STATE, newest, claimed .. ' ' .. ARGV[2], seat, time)
return {time, run, longest, 'released', {{'free'}}}
