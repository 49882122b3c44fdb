--[[
renew: move the deadlines of leases that are still ours.

KEYS    1 meta   2 nodes   3 beats   4 z_inflight
ARGV    1 now   2 epoch   3 node   4 lifetime   5 lease in ms, or '+inf'   then the leased members
RETURN  {'OK', flags}  one digit per lease, 1 = renewed, 0 = not ours any more
        {'NOTREG'}  {'LOST'}  {'BACK', last, history}
Only entries that are in the table are touched: one that was settled or taken over must not come back.
]]
--@include common
--@include node
local no = stranger()
if no then return no end
local bad = wrong_type(KEYS[4], 'zset')
if bad then return bad end
local deadline = ARGV[5]
if deadline ~= '+inf' then deadline = whole(now_ms() + tonumber(deadline)) end
redis.call('ZREM', KEYS[4], '')
local flags, add = {}, {}
for i = 6, #ARGV do
  if redis.call('ZSCORE', KEYS[4], ARGV[i]) then
    flags[#flags + 1] = '1'
    add[#add + 1] = deadline
    add[#add + 1] = ARGV[i]
  else
    flags[#flags + 1] = '0'
  end
end
add_all(KEYS[4], add)
keep(ARGV[4], KEYS[4])
return {'OK', table.concat(flags)}
