--[[
alert: may this alert be sent? Once for the whole cluster within an interval.

KEYS    1 alerts
ARGV    1 now or ''   2 name   3 interval in ms   4 lifetime of run keys in ms (0 = for ever)
RETURN  1 yes, and nobody else within the interval; 0 no
]]
local now
if ARGV[1] ~= '' then
  now = tonumber(ARGV[1])
else
  local t = redis.call('TIME')
  now = t[1] * 1000 + math.floor(t[2] / 1000)
end
local last = tonumber(redis.call('ZSCORE', KEYS[1], ARGV[2]))
if last and now - last < tonumber(ARGV[3]) and now >= last then return 0 end
-- A removal first: an alert that memory is full must get through.
redis.call('ZREM', KEYS[1], ARGV[2])
redis.call('ZADD', KEYS[1], string.format('%.0f', now), ARGV[2])
if ARGV[4] ~= '0' then redis.call('PEXPIRE', KEYS[1], ARGV[4]) end
return 1
