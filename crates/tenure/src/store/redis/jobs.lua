-- What is kept of a job. Follows the holder.
--
-- A job has one row, which is never deleted, and a record for each of its latest occurrences: the newest takes the
-- place of the oldest, so that they stay as many as they are.
local JOBS = KEYS[12] -- hash: resource -> through, records made, ran, failed, interrupted, missed, skipped, plan
local RUNS = KEYS[13] -- hash: resource \0 number of the place -> a record: numbers, state, took \0 worker \0 note

local RECORDS = 50
local HEAD_START = 60000          -- ms; so long before its time an occurrence may be begun
local LAST = 7258118400000        -- ms; the last occurrence there is
local MOST_ATTEMPTS = 4294967295

-- The last occurrence that may be begun now.
local function head_start()
  return math.min(math.floor(now / 1000) + HEAD_START, LAST)
end

-- A record as it is written down, or nothing.
local function run_in(row)
  local numbers, state, took, worker, note = match(row or '', '^([%d ]+) (%l+) (%d*)%z(%Z+)%z(%Z*)$')
  local occurrence, attempt, by, key, began_at, missed, skipped =
    match(numbers or '', '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$')
  if not occurrence then return nil end
  return {
    occurrence = tonumber(occurrence), attempt = tonumber(attempt), token = by, key = key, began_at = tonumber(began_at),
    missed = missed, skipped = skipped, state = state, took = took, worker = worker, note = note,
  }
end

-- The row of a job as it is written down, or nothing.
local function job_in(row)
  local through, made, ran, failed, interrupted, missed, skipped, plan =
    match(row, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%Z+)$')
  if not through then return nil end
  return {
    through = tonumber(through), made = tonumber(made), ran = tonumber(ran), failed = tonumber(failed),
    interrupted = tonumber(interrupted), missed = tonumber(missed), skipped = tonumber(skipped), plan = plan,
  }
end

-- Where the record with this number is written down: 0 for the first one.
local function place_of(name, number)
  return name .. '\0' .. number % RECORDS
end

-- Whether jobs were made here once, and all of them are gone.
local function lost_all()
  return call('HGET', STATE, 'jobs') and call('EXISTS', JOBS) == 0
end

-- The job with its latest record, if there is one. Or what is damaged: a job is made only where none can have been, or
-- what was run once could be run again.
local function find_job()
  local row, first = call('HGET', JOBS, name), call('HGET', RUNS, place_of(name, 0))
  if not row then
    if first or lost_all() then return nil, damaged(name, 'its job') end
    return nil
  end
  local job = job_in(row)
  if not job then return nil, damaged(name, 'its job') end
  if job.made > 0 then
    job.latest = run_in(call('HGET', RUNS, place_of(name, job.made - 1)))
    if not job.latest then return nil, damaged(name, 'the latest record of its job') end
  end
  return job
end

local function save_job(job)
  local run = job.latest
  if run then
    local numbers = table.concat({
      int(run.occurrence), int(run.attempt), run.token, run.key, int(run.began_at), run.missed, run.skipped,
    }, ' ')
    call('HSET', RUNS, place_of(name, job.made - 1),
      numbers .. ' ' .. run.state .. ' ' .. run.took .. '\0' .. run.worker .. '\0' .. run.note)
  end
  call('HSET', JOBS, name, table.concat({
    int(job.through), int(job.made), int(job.ran), int(job.failed), int(job.interrupted), int(job.missed),
    int(job.skipped), job.plan,
  }, ' '))
end

-- Notes that the latest run was left in the middle, if it is under way; not the one under the token `but`. Says whether
-- it was.
local function interrupt(job, but)
  local run = job.latest
  if not run or run.state ~= 'running' or run.token == but then return false end
  run.state = 'interrupted'
  job.interrupted = job.interrupted + 1
  return true
end

-- A record as it is told; an empty list for none.
local function told(run)
  if not run then return {} end
  return {
    int(run.occurrence), int(run.attempt), run.token, run.key, run.worker, int(run.began_at), run.state, run.took,
    run.missed, run.skipped, run.note,
  }
end
