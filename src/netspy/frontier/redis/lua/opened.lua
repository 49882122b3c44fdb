--[[
opened: which tasks still have requests that are not done.

KEYS    1 tasks
ARGV    1 now (unused)   then the tasks
RETURN  one digit per task: 0 = nothing is left of it, 1 = it has requests, 2 = it is still being turned into them
]]
local found = {}
for i = 2, #ARGV do
  local counted = redis.call('HGET', KEYS[1], ARGV[i])
  found[i - 1] = not counted and '0' or string.sub(counted, -1) == '1' and '2' or '1'
end
return table.concat(found)
