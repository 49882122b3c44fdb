--[[
opened: which tasks still have requests that are not done.

KEYS    1 meta   2 nodes   3 beats   4 tasks
ARGV    1 now (unused)   2 epoch   3 node   4 lifetime (unused)   then for each task: its name, and the history under which
        it was put, or ''
RETURN  {'OK', states, history}   states, one digit per task: 0 = nothing is left of it, or it was never put, 1 = it has
        requests, and all that were put are here, 2 = it is still being turned into them, 3 = it was put under another
        history, and what is here doesn't tell whether it is done or gone
        {'NOTREG'}  {'LOST'}
]]
--@include common
--@include node
local no = stranger()
if no then return no end
local history = history_of(KEYS[1])
local states = {}
for i = 5, #ARGV, 2 do
  local counted, put_under = redis.call('HGET', KEYS[4], ARGV[i]), ARGV[i + 1]
  local state = not counted and '0' or string.sub(counted, -1) == '1' and '2' or '1'
  -- `put` says only of a task that is here as a whole that it was fed.
  if state ~= '1' and put_under ~= '' and put_under ~= history then state = '3' end
  states[#states + 1] = state
end
return {'OK', table.concat(states), history}
