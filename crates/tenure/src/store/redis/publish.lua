-- publish(lease, resource, token, channel, bytes): sends to all who have subscribed, if the lease holds the ticket under
-- exactly this token: looked at in the same step. Marks nobody.
local ticket, trouble = ticket_held()
if trouble then return trouble end
if not ticket then return answer('not-owner') end
call('PUBLISH', ARGV[4], int(ticket) .. ' ' .. token .. ' ' .. ARGV[5])
return answer('sent')
