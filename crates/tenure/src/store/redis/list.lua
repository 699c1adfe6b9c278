-- list(resource, cursor): one job with all its records that are kept, oldest first; or, if none is named, some of all with
-- the latest of each, in no order, and where to go on: '' when all were told. Damaged ones are left out, and named.
local AT_A_TIME = 250
local wanted, cursor = ARGV[1], ARGV[2]
local views, left_out = {}, {}

-- Tells a job with the records from this number on.
local function tell(name, row, from)
  local job = job_in(row)
  local places, records = {}, {}
  if job then
    for number = math.max(job.made - from, 0), job.made - 1 do places[#places + 1] = place_of(name, number) end
    for _, found in ipairs(places[1] and call('HMGET', RUNS, unpack(places)) or {}) do
      local run = run_in(found)
      if run then records[#records + 1] = told(run) end
    end
  end
  if not job or #records < #places then
    left_out[#left_out + 1] = name
    return
  end
  views[#views + 1] = {
    name, job.plan, int(job.through), int(job.ran), int(job.failed), int(job.interrupted), int(job.missed),
    int(job.skipped), records,
  }
end

if wanted ~= '' then
  local row = call('HGET', JOBS, wanted)
  if row then
    tell(wanted, row, RECORDS)
  elseif call('HGET', RUNS, place_of(wanted, 0)) or lost_all() then
    left_out = {wanted}
  end
  return answer(views, '', left_out)
end
if lost_all() then return damaged('all', 'all jobs') end
local page = call('HSCAN', JOBS, cursor == '' and '0' or cursor, 'COUNT', AT_A_TIME)
for index = 1, #page[2], 2 do tell(page[2][index], page[2][index + 1], 1) end
return answer(views, page[1] == '0' and '' or page[1], left_out)
