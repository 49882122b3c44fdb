--[[
opened: which tasks still have requests that are not done.

KEYS    1 tasks
ARGV    1 now (unused)   then the tasks
RETURN  one digit per task: 1 = it has
]]
local found = {}
for i = 2, #ARGV do found[i - 1] = redis.call('HEXISTS', KEYS[1], ARGV[i]) end
return table.concat(found)
