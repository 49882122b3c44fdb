--[[
retry: failed tasks back to the end of the list.

KEYS    1 tasks   2 tasks:inflight   3 tasks:meta   4 tasks:failed
ARGV    1 now or ''   then for each: the record as it stands in the failed list, the task as it was pushed
RETURN  how many were moved; a record that is no longer there is passed over
]]
--@include source
local bad = wrong_types()
if bad then return bad end
local moved = 0
for i = 2, #ARGV, 2 do
  if redis.call('LREM', KEYS[4], 1, ARGV[i]) == 1 then
    redis.call('RPUSH', KEYS[1], ARGV[i + 1])
    moved = moved + 1
  end
end
redis.call('HINCRBY', KEYS[3], 'added', moved)
return moved
