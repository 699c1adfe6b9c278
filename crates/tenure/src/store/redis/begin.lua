-- begin(lease, resource, token, occurrence, missed, skipped, again): claims an occurrence for the owner. `through` only
-- rises, in the step that names the one who runs it, so each is claimed at most once. The same claim once more is
-- answered with the same record; `again` lets the latest be run once more, under its first key, if it has failed or was
-- interrupted. Marks nobody.
local ticket, trouble = ticket_held()
if trouble then return trouble end
if not ticket then return answer('not-owner') end
local job, damage = find_job()
if damage then return damage end
if not job then return answer('unknown') end

local occurrence, latest = tonumber(ARGV[4]), job.latest
if occurrence > head_start() then return answer('early') end

-- The latest record is of a run that begins now.
local function run_now()
  local run = job.latest
  run.token, run.worker, run.began_at = token, label_of(lease), now
  run.state, run.took, run.note = 'running', '', ''
  save_job(job)
  return answer('begun', told(run))
end

if occurrence > job.through then
  -- Whoever goes on to the next without a word about the last one has left it in the middle.
  if interrupt(job) then save_job(job) end
  job.through, job.made = occurrence, job.made + 1
  job.missed, job.skipped = job.missed + ARGV[5], job.skipped + ARGV[6]
  job.latest = {occurrence = occurrence, attempt = 1, key = token, missed = ARGV[5], skipped = ARGV[6]}
  return run_now()
end
if not latest or latest.occurrence ~= occurrence then return answer('taken', told(latest)) end
-- Its reply was lost.
if latest.state == 'running' and latest.token == token then return answer('begun', told(latest)) end
-- Not under the token under which it was begun: that would be late, for it has ended since.
if ARGV[7] == 'again' and latest.state ~= 'ran' and latest.token ~= token then
  interrupt(job)
  latest.attempt = math.min(latest.attempt + 1, MOST_ATTEMPTS)
  return run_now()
end
return answer('taken', told(latest))
