--[[
end: what becomes of taken tasks.

KEYS    1 tasks   2 tasks:inflight   3 tasks:meta   4 tasks:failed
ARGV    1 now or ''   2 what: keep, settled, failed or release   3 ms (keep)   then for each task the member as it was taken,
        and its error (failed) or ''
RETURN  how many of them were still this delivery's
]]
--@include source
local bad = wrong_types()
if bad then return bad end
redis.call('ZREM', KEYS[2], '')
local now = now_ms()
local what, found = ARGV[2], 0
for i = 4, #ARGV, 2 do
  local member = ARGV[i]
  if what == 'keep' then
    if redis.call('ZSCORE', KEYS[2], member) then
      redis.call('ZADD', KEYS[2], 'XX', whole(now + tonumber(ARGV[3])), member)
      found = found + 1
    end
  elseif redis.call('ZREM', KEYS[2], member) == 1 then
    found = found + 1
    if what == 'failed' then
      give_up(member, ARGV[i + 1], now)
    elseif what == 'release' then
      local deliveries = math.max(0, (tonumber(string.sub(member, 16, 17)) or 1) - 1)
      redis.call('ZADD', KEYS[2], '0', string.sub(member, 1, 15) .. string.format('%02d', deliveries) .. string.sub(member, 18))
    end
  end
end
return found
