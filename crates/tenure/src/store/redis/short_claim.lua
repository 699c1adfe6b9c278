-- claim(lease, seq, judged_by, longest, seen, resource, tickets, priority) as it mostly is after a hint: the free ticket of a
-- resource that has one, for the first who waits. Says nothing, and has written nothing, where it is not: then claim.lua is
-- to say it, which says the same of these. See short_release.lua.
local STATE, QUEUE, HELD, HISTORY = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
-- Before 7.0 a script that asks for the time has to say that its effects are replicated, and not itself.
if redis.replicate_commands then redis.replicate_commands() end
local call, match, sub = redis.call, string.match, string.sub

local clock = call('TIME')
local time = clock[1] .. sub('00000' .. clock[2], -6)
local now = tonumber(time)
-- Which life of the server this is, as head.lua has it.
local replication = call('INFO', 'replication')
local _, last = string.find(replication, '\nmaster_replid:', 1, true)
if not last or not string.find(replication, '\nrole:master', 1, true) then return false end
local run = sub(replication, last + 1, last + 32)

local lease, seq, name = ARGV[1], tonumber(ARGV[2]), ARGV[6]
local asked, newest, seat = lease .. '\0' .. name, 'newest:' .. lease .. '\0' .. name, 'seat:' .. name .. '\0' .. '0'
local resource, place = 'resource:' .. name, 'place:' .. lease .. '\0' .. name
local found = call('HMGET', STATE, 'run', 'quarantine', 'longest', 'noticed:' .. lease, 'lease:' .. lease,
  resource, seat, newest, place, 'until:' .. lease)
local longest = found[3]
if ARGV[7] ~= '1' or found[1] ~= run or found[2] or not longest or found[4] or now >= 7258118400000000 then return false end
if (ARGV[5] ~= run and ARGV[5] ~= '') or tonumber(ARGV[4]) > tonumber(longest) then return false end
local opened_at, label = match(found[5] or '', '^%d+ (%d+) %S+ (.*)$')
local set_at, set_by, set_seq, arrivals, term, token =
  match(found[6] or '', '^1 (%d+) (%x+) (%d+) (%d+) (%d+) (%d+) 1$')
local claimed, released = match(found[8] or '', '^(%d+) (%d+)$')
if not label or not token or not claimed or not match(found[7] or '', '^%d+$') then return false end
if seq <= tonumber(claimed) or seq <= tonumber(released) then return false end
local first = call('ZRANGEBYLEX', QUEUE, '[' .. name .. '\0', '(' .. name .. '\1', 'LIMIT', '0', '1')[1]
if first ~= name .. '\0' .. (found[9] or '') .. ' ' .. lease then return false end
if (tonumber(found[10] or '') or 0) <= now then return false end

if tonumber(opened_at) > tonumber(set_at) or (lease == set_by and seq > tonumber(set_seq)) then
  set_at, set_by, set_seq = opened_at, lease, ARGV[2]
end
local format = string.format
term, token = format('%.0f', term + 1), now > tonumber(token) and time or format('%.0f', token + 1)
-- The first writes: of a key of another kind, and of the memory limit, the other is to say it.
local row = asked .. '\0' .. '0 ' .. token
if type(redis.pcall('ZADD', HELD, '0', row)) == 'table' then return false end
local granted = time .. ' granted 0 ' .. term .. ' ' .. token .. '\0' .. name .. '\0' .. label
if type(redis.pcall('XADD', HISTORY, 'MAXLEN', '~', '10000', '*', 'e', granted)) == 'table' then
  call('ZREM', HELD, row)
  return false
end
call('ZREM', QUEUE, first)
local shared = ' ' .. term .. ' ' .. token
call('HSET', STATE, newest, ARGV[2] .. ' ' .. released, seat, time .. ' ' .. lease .. shared,
  resource, '1 ' .. set_at .. ' ' .. set_by .. ' ' .. set_seq .. ' ' .. arrivals .. shared .. ' 1',
  place, '')
return {time, run, longest, 'claimed', {{'granted', '0', term, token}}}
