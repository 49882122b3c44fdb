--[[
put: deduplicate and enqueue in one step.

KEYS    1 meta   2 nodes   3 beats   4 z_requests   5 lock:seed   6 tasks   7 closing   8 dedup layout   9 dedup count
        10 dedup set   11… layers
ARGV    1 now   2 epoch   3 node   4 lifetime   5 op   6 dedup kind (none, set, bloom)   7 dedup lifetime
        8 layout line   9 seed token or ''   10 number of entries   then for each: id, site, priority, body
        then the number of tasks, and for each: task, 1 when these are its last requests, closing text or '', the memory
        under which its first requests were put, or ''
RETURN  {'OK', flags, history, count}   flags: one digit per entry, 1 = queued, 0 = a repeat; count: fingerprints known
        {'AGAIN', flags, history}       this op was done before
        {'STALEOP', last}  {'NOTREG'}  {'LOST'}  {'BACK', last, history}   nothing was changed
        {'NOTSEEDER'}                   the seeding lock is somebody else's
A task whose first requests were put under another memory is still being turned into requests after its last ones: some
may be gone.
Fails whole when memory is full: HINCRBY is its first write.
]]
--@include common
--@include node
--@include entry
--@include dedup
--@include tasks
local no = stranger()
if no then return no end
local op = tonumber(ARGV[5])
local again = write_done_before(op)
if again then return again end
if ARGV[9] ~= '' then
  local lock = redis.call('GET', KEYS[5]) or ''
  if string.match(lock, '^seeding (%S+)') ~= ARGV[9] then return {'NOTSEEDER'} end
end
local n = tonumber(ARGV[10])
local marks = tonumber(ARGV[11 + 4 * n])
if not marks or #ARGV ~= 11 + 4 * n + 4 * marks then
  return redis.error_reply('NETSPYARGS put got ' .. #ARGV .. ' arguments for ' .. n .. ' entries')
end
local bad = wrong_type(KEYS[4], 'zset') or wrong_type(KEYS[6], 'hash') or wrong_type(KEYS[7], 'hash')
if bad then return bad end
for i = 11, 10 + 4 * n, 4 do
  local prio = tonumber(ARGV[i + 2])
  if #ARGV[i] ~= 16 or #ARGV[i + 1] ~= 8 or not prio or prio ~= prio or prio - prio ~= 0 or not is_body(ARGV[i + 3], 1) then
    return redis.error_reply('NETSPYARGS put: entry ' .. ((i - 11) / 4) .. ' is malformed')
  end
end
local err, known = collection(ARGV[6], 8, ARGV[8], ARGV[7])
if err then return err end

local seq = redis.call('HINCRBY', KEYS[1], 'seq', n) - n
local flags, add = {}, {}
for i = 11, 10 + 4 * n, 4 do
  seq = seq + 1
  if known.add(ARGV[i]) then
    flags[#flags + 1] = '1'
    add[#add + 1] = ARGV[i + 2]
    add[#add + 1] = new_entry(seq, ARGV[i + 1], ARGV[i + 3])
    task_moved(KEYS[6], ARGV[i + 3], 1, 0)
  else
    flags[#flags + 1] = '0'
  end
end
add_all(KEYS[4], add)
local count = known.finish()
for i = 12 + 4 * n, #ARGV, 4 do
  local all_here = ARGV[i + 3] == '' or ARGV[i + 3] == memory()
  task_named(KEYS[6], ARGV[i])[3] = ARGV[i + 1] == '1' and all_here and 0 or 1
  if ARGV[i + 2] ~= '' then redis.call('HSET', KEYS[7], ARGV[i], ARGV[i + 2]) end
end
write_tasks(KEYS[6], KEYS[7], KEYS[1], KEYS[4], ARGV[4])
local answer = table.concat(flags)
remember_write(op, answer)
keep(ARGV[4], KEYS[1], KEYS[2], KEYS[4])
return {'OK', answer, history_of(KEYS[1]), count}
