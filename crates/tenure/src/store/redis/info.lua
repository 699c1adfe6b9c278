-- info(KEYS: all keys whose names are known): how many of them exist, and what the server tells about itself. In this order:
-- data that is lost after the look at the keys is counted by the time of the other.
local existing = call('EXISTS', unpack(KEYS))
return {time, life, {existing, call('INFO') .. call('INFO', 'commandstats')}}
