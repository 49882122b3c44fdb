--[[
reclaim: leases that ran out go back to the queue, oldest first, at their old place; poison goes to the failed list.

KEYS    1 meta   2 nodes   3 beats   4 z_requests   5 z_inflight   6 failed_requests
        7 tasks   8 closing
ARGV    1 now   2 epoch   3 node   4 lifetime   5 limit   6 stale ms   7 gap ms   8 expired starts allowed
RETURN  {'OK', returned, poisoned, more (1 or 0)}   {'WAIT'} this node's own beats are not steady yet   {'NOTREG'}  {'LOST'}  {'BACK', last, history}
]]
--@include common
--@include node
--@include entry
--@include tasks
--@include steady
local no = stranger()
if no then return no end
local now = now_ms()
if unsteady(now, tonumber(ARGV[6]), tonumber(ARGV[7])) then return {'WAIT'} end
local bad = wrong_type(KEYS[4], 'zset') or wrong_type(KEYS[5], 'zset') or wrong_type(KEYS[6], 'list')
  or wrong_type(KEYS[7], 'hash') or wrong_type(KEYS[8], 'hash')
if bad then return bad end
local limit = tonumber(ARGV[5])
local out = redis.call('ZRANGEBYSCORE', KEYS[5], '-inf', whole(now), 'LIMIT', 0, limit)
if #out == 0 then return {'OK', 0, 0, 0} end
remove_all(KEYS[5], out)
local add, poisoned = {}, 0
for _, member in ipairs(out) do
  local queued, prio = ran_out(member, now, tonumber(ARGV[8]), false)
  if queued then
    add[#add + 1] = prio
    add[#add + 1] = queued
  else
    redis.call('RPUSH', KEYS[6], prio)
    task_moved(KEYS[7], body_of(member, 42), -1, 1)
    poisoned = poisoned + 1
  end
end
add_all(KEYS[4], add)
write_tasks(KEYS[7], KEYS[8], KEYS[1], KEYS[4], ARGV[4])
keep(ARGV[4], KEYS[4], KEYS[5], KEYS[6])
return {'OK', #out - poisoned, poisoned, #out == limit and 1 or 0}
