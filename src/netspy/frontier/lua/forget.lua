--[[
forget: remove a node's record, at its own end or after a full sweep found no lease of it.

KEYS    1 meta   2 nodes   3 beats
ARGV    1 now   2 epoch   3 node   4 lifetime   5 whose record   6 stale ms; -1: my own, whatever its age
RETURN  {'OK'}   {'ALIVE'} it has beaten again   {'LOST'}
]]
--@include common
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[2] then return {'LOST'} end
local whose = ARGV[5]
local last = redis.call('ZSCORE', KEYS[3], whose)
if last and ARGV[6] ~= '-1' and now_ms() - tonumber(last) <= tonumber(ARGV[6]) then return {'ALIVE'} end
redis.call('HDEL', KEYS[2], whose, whose .. ':s', whose .. ':c', whose .. ':p')
redis.call('ZREM', KEYS[3], whose)
return {'OK'}
