--[[
settle: for each finished parent that is still ours, put its children, then drop it.

KEYS    1 meta   2 nodes   3 beats   4 z_requests   5 z_inflight   6 tasks   7 closing   8 dedup layout   9 dedup count
        10 dedup set   11… layers
ARGV    1 now   2 epoch   3 node   4 lifetime   5 op   6 dedup kind   7 dedup lifetime   8 layout line
        9 number of plain parents (no children, no memory)   then their leased members
        then the number of other parents, and for each: leased member, memory or '', number of children,
        then for each child: id, site, priority, body
RETURN  {'OK', answer, history, count}   answer: for each plain parent, then for each other one, `a` (acked), `x` (not
        ours) or `h` (its earlier children were put under another memory), each `a` of the latter followed by one
        digit per child, 1 = queued, 0 = a repeat
        {'AGAIN', answer, history}  {'STALEOP', last}  {'NOTREG'}  {'LOST'}  {'BACK', last, history}
With children it fails whole when memory is full (HINCRBY first); without, it begins with a removal and goes through.
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
local bad = wrong_type(KEYS[4], 'zset') or wrong_type(KEYS[5], 'zset') or wrong_type(KEYS[6], 'hash')
  or wrong_type(KEYS[7], 'hash')
if bad then return bad end
local plain = tonumber(ARGV[9])
local others = tonumber(ARGV[10 + plain])
local at, children = 11 + plain, 0
for _ = 1, others do
  local n = tonumber(ARGV[at + 2])
  at = at + 3
  for _ = 1, n do
    local prio = tonumber(ARGV[at + 2])
    if not prio or prio ~= prio or prio - prio ~= 0 or #ARGV[at] ~= 16 or #ARGV[at + 1] ~= 8 or not is_body(ARGV[at + 3], 1) then
      return redis.error_reply('NETSPYARGS settle: child ' .. children .. ' is malformed')
    end
    children = children + 1
    at = at + 4
  end
end
if at ~= #ARGV + 1 then return redis.error_reply('NETSPYARGS settle got ' .. #ARGV .. ' arguments, expected ' .. (at - 1)) end
local err, known
if children > 0 then
  err, known = collection(ARGV[6], 8, ARGV[8], ARGV[7])
  if err then return err end
end

local seq = 0
if children > 0 then
  seq = redis.call('HINCRBY', KEYS[1], 'seq', children) - children
else
  redis.call('HDEL', KEYS[2], '')
end
local remembered = others > 0 and memory()
local answer, add = {}, {}
for i = 10, 9 + plain do
  if redis.call('ZREM', KEYS[5], ARGV[i]) == 1 then
    answer[#answer + 1] = 'a'
    task_moved(KEYS[6], body_of(ARGV[i], 42), -1, 0)
  else
    answer[#answer + 1] = 'x'
  end
end
at = 11 + plain
for _ = 1, others do
  local member, put_under, n = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2])
  at = at + 3
  if put_under ~= '' and put_under ~= remembered then
    answer[#answer + 1] = 'h'
  elseif redis.call('ZREM', KEYS[5], member) == 0 then
    answer[#answer + 1] = 'x'
  else
    answer[#answer + 1] = 'a'
    task_moved(KEYS[6], body_of(member, 42), -1, 0)
    for i = at, at + 4 * n - 4, 4 do
      seq = seq + 1
      if known.add(ARGV[i]) then
        answer[#answer + 1] = '1'
        add[#add + 1] = ARGV[i + 2]
        add[#add + 1] = new_entry(seq, ARGV[i + 1], ARGV[i + 3])
        task_moved(KEYS[6], ARGV[i + 3], 1, 0)
      else
        answer[#answer + 1] = '0'
      end
    end
  end
  at = at + 4 * n
end
add_all(KEYS[4], add)
write_tasks(KEYS[6], KEYS[7], KEYS[1], KEYS[4], ARGV[4])
local count = known and known.finish() or 0
answer = table.concat(answer)
remember_write(op, answer)
keep(ARGV[4], KEYS[1], KEYS[2], KEYS[4], KEYS[5])
return {'OK', answer, history_of(KEYS[1]), count}
