-- finish(lease, resource, token, occurrence, outcome, note): how the latest run ended, said by the one under whose token
-- it was begun. That it did is true also when the lease does not live any more. The same said again is answered with the
-- same record. Marks nobody, and runs also at the memory limit.
local job, damage = find_job()
if damage then return damage end
if not job then return answer('unknown') end

local latest, outcome = job.latest, ARGV[5]
if not latest or latest.occurrence ~= tonumber(ARGV[4]) or latest.token ~= token then
  return answer('taken', told(latest))
end
if latest.state == 'running' then
  latest.state, latest.took, latest.note = outcome, int(math.max(now - latest.began_at, 0)), ARGV[6]
  job[outcome] = job[outcome] + 1
  runs_at_the_limit()
  save_job(job)
end
return answer(latest.state == outcome and 'finished' or 'taken', told(latest))
