--[[
sweep: one bounded step through the leases for those of one node.

KEYS    1 meta   2 nodes   3 beats   4 z_requests   5 z_inflight   6 failed_requests
        7 tasks   8 closing
ARGV    1 now   2 epoch   3 node   4 lifetime   5 whose leases   6 stale ms   7 gap ms   8 expired starts allowed
        9 lease off (1 or 0)   10 cursor: '' at the beginning   11 how many leases to look at   12 most to move
        13 what: dead (its heartbeat is stale), leave (my own, at my end) or orphans (my own that I don't hold, and those
           in the name of a node without a record, which nobody can renew or ack)
        14 orphans: only claims up to these six digits   15 orphans: what I hold, `seq15 op6` each
RETURN  {'OK', next cursor ('' at the end), moved, failed}   {'ALIVE'} the node is not dead   {'GONE'} no such node
        {'WAIT'}  {'NOTREG'}  {'LOST'}  {'BACK', last, history}
Nobody renews a dead node's leases, so their scores stand still and a cursor of `score offset` passes none of them. Leases
without a deadline all have the same score; there the cursor is a member, in the order of the text.
]]
--@include common
--@include node
--@include entry
--@include tasks
--@include steady
local no = stranger()
if no then return no end
local now = now_ms()
local whose, mode = ARGV[5], ARGV[13]
if mode == 'dead' then
  local last = redis.call('ZSCORE', KEYS[3], whose)
  if not last then return {'GONE'} end
  if not is_stale(last, now, tonumber(ARGV[6])) then return {'ALIVE'} end
  if unsteady(now, tonumber(ARGV[6]), tonumber(ARGV[7])) then return {'WAIT'} end
end
local bad = wrong_type(KEYS[4], 'zset') or wrong_type(KEYS[5], 'zset') or wrong_type(KEYS[6], 'list')
  or wrong_type(KEYS[7], 'hash') or wrong_type(KEYS[8], 'hash')
if bad then return bad end
local known = {}
local function nobodys(member)
  local name = sub(member, 28, 35)
  if known[name] == nil then known[name] = redis.call('ZSCORE', KEYS[3], name) and true or false end
  return mode == 'orphans' and not known[name]
end

local held = {}
for i = 1, #(ARGV[15] or ''), 21 do held[sub(ARGV[15], i, i + 20)] = true end

local length, most = tonumber(ARGV[11]), tonumber(ARGV[12])
local rows
local endless = redis.call('ZCOUNT', KEYS[5], '-inf', '(+inf') == 0
local cursor = ARGV[10]
local first_score
local score, offset = string.match(cursor, '^s (%S+) (%d+)$')
if endless then
  local from = string.match(cursor, '^m (.*)$')
  rows = redis.call('ZRANGEBYLEX', KEYS[5], from and '(' .. from or '-', '+', 'LIMIT', 0, length)
else
  local found = redis.call('ZRANGEBYSCORE', KEYS[5], score or '-inf', '+inf', 'WITHSCORES', 'LIMIT', tonumber(offset or 0), length)
  rows, offset = {}, tonumber(offset or 0)
  first_score = found[2]
  for i = 1, #found, 2 do
    rows[#rows + 1] = found[i]
    if found[i + 1] == score then offset = offset + 1 else score, offset = found[i + 1], 1 end
  end
end

local mine, last_looked, stopped = {}, nil, false
for _, member in ipairs(rows) do
  if nobodys(member) or (sub(member, 28, 35) == whose
    and (mode ~= 'orphans' or (sub(member, 36, 41) <= ARGV[14] and not held[sub(member, 1, 15) .. sub(member, 36, 41)]))) then
    if #mine >= most then stopped = true; break end
    mine[#mine + 1] = member
  end
  last_looked = member
end
local next_cursor = ''
if stopped then
  next_cursor = cursor == '' and 's -inf 0' or cursor
elseif #rows == length then
  if endless then
    next_cursor = 'm ' .. last_looked
  else
    -- Entries of one score are looked at again: others of that score may leave the table meanwhile and shift the offset.
    -- Only a stretch of a single score goes on by offset, less what is moved out of it now.
    next_cursor = 's ' .. score .. ' ' .. (first_score ~= score and 0 or math.max(0, offset - #mine))
  end
end
if stopped and endless and string.sub(next_cursor, 1, 1) == 's' then next_cursor = 'm ' end

redis.call('ZREM', KEYS[5], '')
local add, failed = {}, 0
if #mine > 0 then
  remove_all(KEYS[5], mine)
  for _, member in ipairs(mine) do
    local queued, prio
    if mode == 'dead' or nobodys(member) or not is_entry(member, 42) or not number_text((tail_of(member, 42))) or (mode == 'leave' and ARGV[9] == '1') then
      queued, prio = ran_out(member, now, tonumber(ARGV[8]), ARGV[9] == '1')
    else
      local body
      prio, body = tail_of(member, 42)
      queued = sub(member, 1, 15) .. deliveries(member, mode == 'leave' and -1 or 0) .. sub(member, 18, 26) .. body
    end
    if queued then
      add[#add + 1] = prio
      add[#add + 1] = queued
    else
      redis.call('RPUSH', KEYS[6], prio)
      task_moved(KEYS[7], body_of(member, 42), -1, 1)
      failed = failed + 1
    end
  end
  add_all(KEYS[4], add)
  write_tasks(KEYS[7], KEYS[8], KEYS[1], KEYS[4], ARGV[4])
  keep(ARGV[4], KEYS[4], KEYS[5], KEYS[6])
end
return {'OK', next_cursor, #mine, failed}
