--[[
opened: which tasks still have requests that are not done.

KEYS    1 meta   2 nodes   3 beats   4 tasks
ARGV    1 now (unused)   2 epoch   3 node   4 lifetime   5 op   then for each task: its name, and the memory under which
        it was put, or ''
RETURN  {'OK', states, history}   states, one digit per task: 0 = nothing is left of it, or it was never put, 1 = it has
        requests, and all that were put are here, 2 = it is still being turned into them, 3 = it was put under another
        memory, and what is here doesn't tell whether it is done or gone
        {'AGAIN', states, history}  {'STALEOP', last}  {'NOTREG'}  {'LOST'}  {'BACK', last, history}
It counts as a write, so that the node notices a store that went back behind what it was told here of others' tasks.
]]
--@include common
--@include node
local no = stranger()
if no then return no end
local op = tonumber(ARGV[5])
local again = write_done_before(op)
if again then return again end
local remembered = memory()
local states = {}
for i = 6, #ARGV, 2 do
  local counted, put_under = redis.call('HGET', KEYS[4], ARGV[i]), ARGV[i + 1]
  local state = not counted and '0' or string.sub(counted, -1) == '1' and '2' or '1'
  -- `put` says only of a task that is here as a whole that it was fed.
  if state ~= '1' and put_under ~= '' and put_under ~= remembered then state = '3' end
  states[#states + 1] = state
end
local answer = table.concat(states)
redis.call('HDEL', KEYS[2], '')
remember_write(op, answer)
keep(ARGV[4], KEYS[2])
return {'OK', answer, history_of(KEYS[1])}
