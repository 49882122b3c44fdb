--[[
give: new tasks, at the end of the list or at once into the caller's hands.

KEYS    1 tasks   2 tasks:inflight   3 tasks:meta   4 tasks:failed   5 a key of this call alone
ARGV    1 now or ''   2 epoch to give a new source   3 ms that taken ones are the caller's; '' = to the end of the list
        then the tasks
RETURN  {epoch, members…}   no members when they went to the list, or when this call was done before
The call's own key makes a repeat harmless: taken tasks are kept in it for an hour. Fails whole when memory is full.
]]
--@include source
local bad = wrong_types()
if bad then return bad end
local before = redis.call('GET', KEYS[5])
local n = #ARGV - 3
if before then
  if ARGV[3] == '' then return {epoch_of(ARGV[2])} end
  local members = {}
  for i = 1, n do members[i] = string.format('%015.0f', tonumber(before) + i) .. '01' .. ARGV[3 + i] end
  return {epoch_of(ARGV[2]), unpack(members)}
end
local epoch = epoch_of(ARGV[2])
if ARGV[3] == '' then
  redis.call('HINCRBY', KEYS[3], 'added', n)
  for i = 4, #ARGV, 1000 do redis.call('RPUSH', KEYS[1], unpack(ARGV, i, math.min(i + 999, #ARGV))) end
  redis.call('SET', KEYS[5], 0, 'EX', 3600)
  return {epoch}
end
local seq = redis.call('HINCRBY', KEYS[3], 'seq', n) - n
local deadline = whole(now_ms() + tonumber(ARGV[3]))
local members = {}
for i = 1, n do
  members[i] = string.format('%015.0f', seq + i) .. '01' .. ARGV[3 + i]
  redis.call('ZADD', KEYS[2], deadline, members[i])
end
redis.call('SET', KEYS[5], whole(seq), 'EX', 3600)
return {epoch, unpack(members)}
