-- evict(resource, token): takes this ownership away at once; its worker learns of it with its next renewal, and until
-- then only the token protects. Marks nobody.
local tenant, others = under(ARGV[2])
if not tenant then return answer('other-owners', others) end
notify(resource, tenant, 2)
vacate(resource, tenant, now, 'evicted')
save(resource)
wake(resource, nil, now)
return answer('done')
