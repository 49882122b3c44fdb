--[[
move: release, delay or give up leases that are still ours.

KEYS    1 meta   2 nodes   3 beats   4 z_requests   5 z_inflight   6 z_delayed   7 failed_requests
        8 tasks   9 closing
ARGV    1 now   2 epoch   3 node   4 lifetime   5 op   6 what: release, delay or give_up   then for each lease
        the leased member, delay: ms from now, give_up: the memory under which its children were put or '',
        text: new JSON (delay; '' keeps the old), record (give_up)
RETURN  {'OK', flags, history}   flags: one digit per lease, 1 = moved, 0 = not ours any more, 2 = its children were put
        under another memory
        {'AGAIN', flags, history}  {'STALEOP', last}  {'NOTREG'}  {'LOST'}  {'BACK', last, history}
release: back to the old place in the queue, without counting the delivery. It begins with a removal, so it goes through
when memory is full.
]]
--@include common
--@include node
--@include entry
--@include tasks
local no = stranger()
if no then return no end
local op = tonumber(ARGV[5])
local again = write_done_before(op)
if again then return again end
local what = ARGV[6]
local bad = wrong_type(KEYS[4], 'zset') or wrong_type(KEYS[5], 'zset') or wrong_type(KEYS[6], 'zset') or wrong_type(KEYS[7], 'list')
  or wrong_type(KEYS[8], 'hash') or wrong_type(KEYS[9], 'hash')
if bad then return bad end
if (#ARGV - 6) % 3 ~= 0 then return redis.error_reply('NETSPYARGS ' .. what .. ' got ' .. #ARGV .. ' arguments') end
for i = 7, #ARGV, 3 do
  local text, wait = ARGV[i + 2], tonumber(ARGV[i + 1])
  if (what == 'delay' and (not wait or wait - wait ~= 0 or (text ~= '' and sub(text, 1, 1) ~= '{')))
    or (what == 'give_up' and text == '') then
    return redis.error_reply('NETSPYARGS ' .. what .. ': lease ' .. ((i - 7) / 3) .. ' is malformed')
  end
end

local now = now_ms()
local flags = {}
for i = 7, #ARGV, 3 do
  local member = ARGV[i]
  if what == 'give_up' and ARGV[i + 1] ~= '' and ARGV[i + 1] ~= memory() then
    flags[#flags + 1] = '2'
  elseif redis.call('ZREM', KEYS[5], member) == 0 then
    flags[#flags + 1] = '0'
  else
    flags[#flags + 1] = '1'
    local prio, body = tail_of(member, 42)
    if what == 'release' then
      redis.call('ZADD', KEYS[4], prio, sub(member, 1, 15) .. deliveries(member, -1) .. sub(member, 18, 26) .. body)
    elseif what == 'delay' then
      if ARGV[i + 2] ~= '' then body = tag_of(body) .. ARGV[i + 2] end
      redis.call('ZADD', KEYS[6], whole(now + tonumber(ARGV[i + 1])), sub(member, 1, 26) .. prio .. body)
    else
      redis.call('RPUSH', KEYS[7], ARGV[i + 2])
      task_moved(KEYS[8], body, -1, 1)
    end
  end
end
local answer = table.concat(flags)
redis.call('HDEL', KEYS[2], '')
remember_write(op, answer)
write_tasks(KEYS[8], KEYS[9], KEYS[1], KEYS[4], ARGV[4])
keep(ARGV[4], KEYS[1], KEYS[2], KEYS[4], KEYS[5], KEYS[6], KEYS[7])
return {'OK', answer, history_of(KEYS[1])}
