-- attend(lease, resource, token, plan, from): the owner takes the job up. Makes it if there is none, with nothing before
-- `from` to be missed; a latest run that is under way under another token was interrupted. Keeps the plan, and tells
-- the one before if it was another; then, too, nothing before `from` is missed. Repeating it changes nothing more. Marks
-- nobody.
local ticket, trouble = ticket_held()
if trouble then return trouble end
if not ticket then return answer('not-owner') end
local job, damage = find_job()
if damage then return damage end

local replaced, from = '', math.min(tonumber(ARGV[5]), head_start())
if job then
  if job.plan ~= ARGV[4] then
    job.plan, replaced, job.through = ARGV[4], job.plan, math.max(job.through, from)
  end
  interrupt(job, token)
else
  job = {
    through = from, made = 0, ran = 0, failed = 0, interrupted = 0, missed = 0,
    skipped = 0, plan = ARGV[4],
  }
  call('HSET', STATE, 'jobs', '1')
end
save_job(job)
return answer('attended', int(job.through), told(job.latest), replaced)
