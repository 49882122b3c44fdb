--[[
adopt: what an earlier run of the job has queued and never crawled goes to this run, which knows its pages already and would
leave them out. Bounded steps; each entry is in one place.

KEYS    1 meta   2 nodes   3 beats   4 z_requests   5 z_delayed   6 tasks   7 closing
        of the earlier run: 8 beats   9 z_requests   10 z_inflight   11 z_delayed   12 failed_requests   13 tasks   14 closing
ARGV    1 now   2 epoch   3 node   4 lifetime   5 op   6 stale ms   7 most entries to move   8 expired starts allowed
        9 lease off (1 or 0)   10 lifetime in ms of what stays in the earlier run   11 its nodes that are surely gone, 8 characters each
        then for each failed request: its record as it stands in the list, site, priority, JSON
RETURN  {'OK', answer, history}   `moved <n>`: n entries were moved, call again until it is 0; `alive <ms>`: nothing was changed, a
        node of that run may live, its last heartbeat was then
        {'AGAIN', answer, history}  {'STALEOP', last}  {'NOTREG'}  {'LOST'}  {'BACK', last, history}
Leases count as run out. What can't be read, and what has ended its process too often, goes to the earlier run's failed list.
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
local bad = wrong_type(KEYS[4], 'zset') or wrong_type(KEYS[5], 'zset') or wrong_type(KEYS[6], 'hash') or wrong_type(KEYS[7], 'hash')
  or wrong_type(KEYS[8], 'zset') or wrong_type(KEYS[9], 'zset') or wrong_type(KEYS[10], 'zset') or wrong_type(KEYS[11], 'zset')
  or wrong_type(KEYS[12], 'list') or wrong_type(KEYS[13], 'hash') or wrong_type(KEYS[14], 'hash')
if bad then return bad end
local now, most, limit, lease_off = now_ms(), tonumber(ARGV[7]), tonumber(ARGV[8]), ARGV[9] == '1'

local function answered(answer)
  redis.call('HDEL', KEYS[2], '')
  remember_write(op, answer)
  keep(ARGV[4], KEYS[1], KEYS[2], KEYS[4], KEYS[5])
  return {'OK', answer, history_of(KEYS[1])}
end

local gone = {}
for i = 1, #ARGV[11], 8 do gone[sub(ARGV[11], i, i + 7)] = true end
local beats = redis.call('ZRANGE', KEYS[8], 0, -1, 'WITHSCORES')
for i = #beats - 1, 1, -2 do
  if not gone[beats[i]] and not is_stale(beats[i + 1], now, tonumber(ARGV[6])) then return answered('alive ' .. whole(tonumber(beats[i + 1]))) end
end

local queued, delayed, changes, moved = {}, {}, {}, 0
local seq = redis.call('HINCRBY', KEYS[1], 'seq', most + (#ARGV - 11) / 4) - most - (#ARGV - 11) / 4

-- `rest`: the entry after its number; `score`: priority, or the time when it is due.
local function move(to, rest, score, body)
  seq = seq + 1
  to[#to + 1] = score
  to[#to + 1] = string.format('%015.0f', seq) .. rest
  local task = string.match(body, '^@([^!{][^{]*)')
  if task then
    task_moved(KEYS[6], body, 1, 0)
    changes[task] = (changes[task] or 0) + 1
  end
end

local function aside(member, text, body)
  redis.call('RPUSH', KEYS[12], text)
  local task = string.match(body, '^@([^!{][^{]*)')
  if task then changes[task] = (changes[task] or 0) + 1 end
end

for _, at in ipairs({9, 10, 11}) do
  local rows = moved < most and redis.call('ZRANGE', KEYS[at], 0, most - moved - 1, 'WITHSCORES') or {}
  local members = {}
  for i = 1, #rows, 2 do
    local member, score = rows[i], rows[i + 1]
    members[#members + 1] = member
    if at == 9 then
      if find(member, QUEUED) and is_body(member, 27) and #member <= LONGEST then
        move(queued, sub(member, 16), number_text(score) or '300', sub(member, 27))
      else
        aside(member, unreadable_json(member, now), sub(member, 27))
      end
    elseif at == 10 then
      local entry, prio = ran_out(member, now, limit, lease_off)
      if entry then move(queued, sub(entry, 16), prio, sub(entry, 27)) else aside(member, prio, body_of(member, 42)) end
    else
      local prio, body = tail_of(member, 27)
      if is_entry(member, 27) and number_text(prio) then
        move(delayed, sub(member, 16), score, body)
      else
        aside(member, unreadable_json(member, now), body)
      end
    end
  end
  moved = moved + remove_all(KEYS[at], members)
end
for i = 12, #ARGV, 4 do
  if redis.call('LREM', KEYS[12], 1, ARGV[i]) == 1 then
    moved = moved + 1
    move(queued, '000' .. ARGV[i + 1] .. ARGV[i + 3], ARGV[i + 2], ARGV[i + 3])
  end
end
add_all(KEYS[4], queued)
add_all(KEYS[5], delayed)

for task, n in pairs(changes) do
  local left, failures, feeding = string.match(redis.call('HGET', KEYS[13], task) or '', '^(%-?%d+) (%d+) (%d)$')
  local ours, closing = TASKS[task], redis.call('HGET', KEYS[14], task)
  if ours then
    ours[2] = math.max(ours[2], tonumber(failures) or 0)
    ours[3] = math.max(ours[3], tonumber(feeding) or 0)
    if closing then redis.call('HSETNX', KEYS[7], task, closing) end
  end
  left = (tonumber(left) or 0) - n
  if left > 0 then
    redis.call('HSET', KEYS[13], task, left .. ' ' .. failures .. ' ' .. feeding)
  else
    redis.call('HDEL', KEYS[13], task)
    redis.call('HDEL', KEYS[14], task)
  end
end
write_tasks(KEYS[6], KEYS[7], KEYS[1], KEYS[4], ARGV[4])
if moved == 0 and ARGV[10] ~= '0' then
  for i = 12, 14 do redis.call('PEXPIRE', KEYS[i], ARGV[10]) end
end
return answered('moved ' .. moved)
