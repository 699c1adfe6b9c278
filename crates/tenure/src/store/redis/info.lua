-- info(KEYS: one that earlier builds had, then all keys whose names are known): whether that one exists, how many of
-- the others do, and what the server tells about itself. In this order: data that is lost after the look at the keys is
-- counted by the time of the other.
local earlier = call('EXISTS', KEYS[1])
local existing = call('EXISTS', unpack(KEYS, 2))
return {time, life, {earlier, existing, call('INFO') .. call('INFO', 'commandstats')}}
