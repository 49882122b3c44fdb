--[[
take: tasks into a node's hands: first those whose node is gone, then those that wait, in order.

KEYS    1 tasks (list)   2 tasks:inflight (zset, score = deadline in server ms)   3 tasks:meta (hash)   4 tasks:failed (list)
ARGV    1 now or ''   2 limit   3 ms that they are the node's without another word   4 epoch to give a new source
RETURN  {epoch, waiting, taken, members…}   member: seq15 d2 and the task as it was pushed
A task that comes back a second time may end its process: it comes alone. The caller counts, and fails it in the end.
It begins with a removal, so it goes through when memory is full: it moves tasks and hardly grows.
]]
--@include source
local bad = wrong_types()
if bad then return bad end
redis.call('ZREM', KEYS[2], '')
local now = now_ms()
local epoch = epoch_of(ARGV[4])
local limit = tonumber(ARGV[2])
local deadline = whole(now + tonumber(ARGV[3]))
local members = {}
local back = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', whole(now), 'LIMIT', 0, limit)
if #back == 0 then
  -- A deadline ten years ahead (or inf) is none of netspy's either.
  back = redis.call('ZRANGEBYSCORE', KEYS[2], whole(now + 315360000000), '+inf', 'LIMIT', 0, limit)
end
for _, member in ipairs(back) do
  if not string.match(member, '^' .. string.rep('%d', 17)) then
    redis.call('ZREM', KEYS[2], member)
    give_up(string.rep('0', 17) .. member, 'it was among the tasks at work and netspy has not written it', now)
  else
    local deliveries = tonumber(string.sub(member, 16, 17)) or 0
    if deliveries < 2 or #members == 0 then
      redis.call('ZREM', KEYS[2], member)
      members[#members + 1] = string.sub(member, 1, 15) .. string.format('%02d', math.min(99, deliveries + 1))
        .. string.sub(member, 18)
      redis.call('ZADD', KEYS[2], deadline, members[#members])
      if deliveries >= 2 then break end
    end
  end
end
local alone = members[1] and tonumber(string.sub(members[1], 16, 17)) > 2
if not alone and #members < limit then
  local fresh = redis.call('LPOP', KEYS[1], limit - #members) or {}
  if #fresh > 0 then
    local seq = redis.call('HINCRBY', KEYS[3], 'seq', #fresh) - #fresh
    for i, text in ipairs(fresh) do
      members[#members + 1] = string.format('%015.0f', seq + i) .. '01' .. text
      redis.call('ZADD', KEYS[2], deadline, members[#members])
    end
  end
end
return {epoch, redis.call('LLEN', KEYS[1]), redis.call('ZCARD', KEYS[2]), unpack(members)}
