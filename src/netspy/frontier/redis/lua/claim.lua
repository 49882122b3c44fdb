--[[
claim: lease entries, smallest priority first, first in first out within a priority. Due delayed entries are queued first.

KEYS    1 meta   2 nodes   3 beats   4 z_requests   5 z_inflight   6 z_delayed   7 failed_requests
        8 tasks   9 closing
ARGV    1 now   2 epoch   3 node   4 lifetime   5 op   6 op as six base-36 digits   7 limit
        8 lease in ms, or '+inf'   9–11 room for suspects with 0, 1, 2 or more expired starts
        12 sites to pass over, 8 characters each   13 rank in the queue where the second stretch begins
        14 length of the first stretch   15 length of the second   16 most delayed entries to queue
        17 most bytes of entries: one at least is given, however large
RETURN  {'OK', history, queued, delayed, leased, ms to the next due one or -1, next rank, unreadable, leased members…}
        {'STALEOP', last}  {'NOTREG'}  {'LOST'}  {'BACK', last, history}
Suspects (an earlier lease of theirs ran out) come back marked as started. Entries passed over stay where they are. The
queue's head is always looked at, and a second stretch that moves on from call to call, so that a long row of passed-over
entries hides nothing for ever. Safe to repeat: the last op and its deadline are kept, also when nothing was claimed.
]]
--@include common
--@include node
--@include entry
--@include tasks
local no = stranger()
if no then return no end
local op = tonumber(ARGV[5])
local now = now_ms()
local limit = tonumber(ARGV[7])
local token = NODE .. ARGV[6]

local function reply(members, rank, unreadable)
  local due = redis.call('ZRANGE', KEYS[6], 0, 0, 'WITHSCORES')
  local wait = due[2] and math.max(0, math.ceil(tonumber(due[2]) - now)) or -1
  return {'OK', history_of(KEYS[1]), redis.call('ZCARD', KEYS[4]), redis.call('ZCARD', KEYS[6]), redis.call('ZCARD', KEYS[5]),
    wait, rank, unreadable, unpack(members)}
end

local last = redis.call('HGET', KEYS[2], NODE .. ':c')
if last then
  local number, deadline = string.match(last, '^(%d+) (%S+)$')
  number = tonumber(number) or -1
  if op < number then return {'STALEOP', whole(number)} end
  if op == number then
    local mine = {}
    for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[5], deadline, deadline)) do
      if sub(member, 28, 41) == token then mine[#mine + 1] = member end
    end
    return reply(mine, 0, 0)
  end
end
local bad = wrong_type(KEYS[4], 'zset') or wrong_type(KEYS[5], 'zset') or wrong_type(KEYS[6], 'zset') or wrong_type(KEYS[7], 'list')
  or wrong_type(KEYS[8], 'hash') or wrong_type(KEYS[9], 'hash')
if bad then return bad end

-- A removal as the first write lets the script run when memory is full: it moves entries and hardly grows.
redis.call('ZREM', KEYS[4], '')
local moved_aside = 0
local broken = {}
local due = redis.call('ZRANGEBYSCORE', KEYS[6], '-inf', whole(now), 'LIMIT', 0, tonumber(ARGV[16]))
if #due > 0 then
  local back = {}
  for _, member in ipairs(due) do
    local prio, body = tail_of(member, 27)
    if is_entry(member, 27) and number_text(prio) then
      back[#back + 1] = prio
      back[#back + 1] = sub(member, 1, 26) .. body
    else
      redis.call('RPUSH', KEYS[7], unreadable_json(member, now))
      task_moved(KEYS[8], body, -1, 1)
      moved_aside = moved_aside + 1
    end
  end
  remove_all(KEYS[6], due)
  add_all(KEYS[4], back)
end

local passed = {}
for i = 1, #ARGV[12], 8 do passed[sub(ARGV[12], i, i + 7)] = true end
local room = {tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11])}
local taken, prios = {}, {}
local bytes, most = 0, tonumber(ARGV[17])

-- Returns how many entries of the part stay in the queue, and how many were read.
local function look_at(from, length)
  local stayed = 0
  local rows = redis.call('ZRANGE', KEYS[4], from, from + length - 1, 'WITHSCORES')
  for i = 1, #rows, 2 do
    if #taken >= limit then break end
    local member = rows[i]
    if passed[sub(member, 19, 26)] then
      stayed = stayed + 1
    elseif not find(member, QUEUED) or not is_body(member, 27) or #member > LONGEST then
      broken[#broken + 1] = member
    else
      local s = sub(member, 18, 18)
      local ok = true
      if s ~= '0' then
        local class = math.min(tonumber(s, 36), 3)
        ok = room[class] > 0
        if ok then
          room[class] = room[class] - 1
          -- One at its last chance is with no other suspect.
          room = class == 3 and {0, 0, 0} or {room[1], room[2], 0}
        end
      end
      if ok then
        bytes = bytes + #member
        if bytes > most and #taken > 0 then
          limit = #taken
          break
        end
        taken[#taken + 1] = member
        prios[#prios + 1] = number_text(rows[i + 1]) or '300'
      else
        stayed = stayed + 1
      end
    end
  end
  return stayed, #rows / 2
end

-- The same for a stretch, in parts that grow while its entries are small: all of it at once may be hundreds of megabytes.
local function look(from, length)
  local stayed, read, part = 0, 0, 8
  while length > read and #taken < limit do
    local before = bytes
    local size = math.min(part, length - read)
    local stay, found = look_at(from + read, size)
    stayed = stayed + stay
    read = read + found
    if found < size then break end
    part = bytes - before > 65536 and 8 or part * 4
  end
  return stayed, read
end

-- Without anything to pass over or to hold back, the first `limit` entries are the answer.
local first, second = tonumber(ARGV[14]), tonumber(ARGV[15])
local rank = 0
local stayed, seen = look(0, math.min(limit, first))
if #taken < limit and stayed > 0 then
  local more = look(math.min(limit, first), first - math.min(limit, first))
  stayed = stayed + more
  if #taken < limit then
    local length = redis.call('ZCARD', KEYS[4])
    local from = tonumber(ARGV[13])
    if from < first or from >= length then from = first end
    local before = #taken
    local behind, found = look(from, second)
    rank = from + behind - before
    if not found or found < second then rank = 0 end
  end
end
remove_all(KEYS[4], taken)
if #broken > 0 then
  remove_all(KEYS[4], broken)
  for _, member in ipairs(broken) do
    redis.call('RPUSH', KEYS[7], unreadable_json(member, now))
    task_moved(KEYS[8], sub(member, 27), -1, 1)
  end
end

write_tasks(KEYS[8], KEYS[9], KEYS[1], KEYS[4], ARGV[4])

local deadline = ARGV[8]
if deadline ~= '+inf' then deadline = whole(now + tonumber(deadline)) end
local add, members = {}, {}
for i, member in ipairs(taken) do
  members[i] = lease_of(member, prios[i], token)
  add[2 * i - 1] = deadline
  add[2 * i] = members[i]
end
add_all(KEYS[5], add)
redis.call('HSET', KEYS[2], NODE .. ':c', whole(op) .. ' ' .. deadline)
keep(ARGV[4], KEYS[1], KEYS[2], KEYS[4], KEYS[5], KEYS[6], KEYS[7])
return reply(members, rank, #broken + moved_aside)
