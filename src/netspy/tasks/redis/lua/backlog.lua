--[[
backlog: what the list still has, read at one instant.

KEYS    1 tasks   2 tasks:inflight   3 tasks:meta   4 tasks:failed
ARGV    1 now or ''
RETURN  {waiting, taken, a number that rises with every task added or taken, failed}
Tasks that were given back, or whose node is gone, are in the same set as taken ones, and wait: the next take has them first.
]]
--@include source
local bad = wrong_types()
if bad then return bad end
local counted = redis.call('HMGET', KEYS[3], 'seq', 'added')
for i, name in ipairs({'seq', 'added'}) do
  if counted[i] and not string.match(counted[i], '^%d+$') then
    return redis.error_reply('NETSPYTYPE ' .. KEYS[3] .. ' has ' .. name .. ' = ' .. string.sub(counted[i], 1, 40) .. ', not a number')
  end
end
local back = redis.call('ZCOUNT', KEYS[2], '-inf', whole(now_ms()))
return {redis.call('LLEN', KEYS[1]) + back, redis.call('ZCARD', KEYS[2]) - back,
  tonumber(counted[1] or '0') + tonumber(counted[2] or '0'), redis.call('LLEN', KEYS[4])}
