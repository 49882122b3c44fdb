--[[
forget: remove a node's record, at its own end or after a full sweep found no lease of it.

KEYS    1 meta   2 nodes   3 beats
ARGV    1 now   2 epoch   3 node   4 lifetime   5 whose record   6 stale ms; -1: my own, whatever its age
RETURN  {'OK'}   {'ALIVE'} it has beaten again   {'LOST'}
Of another's record the number of its last write stays: a node that was taken for dead learns by it, when it joins again,
that nothing else was forgotten.
]]
--@include common
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[2] then return {'LOST'} end
local whose = ARGV[5]
local last = redis.call('ZSCORE', KEYS[3], whose)
if last and ARGV[6] ~= '-1' and not is_stale(last, now_ms(), tonumber(ARGV[6])) then return {'ALIVE'} end
-- What it had counted stays part of the run's totals.
local report = redis.call('HGET', KEYS[2], whose)
redis.call('HDEL', KEYS[2], '')
local ok, found = pcall(cjson.decode, report or '{}')
if ok and type(found) == 'table' and type(found.counters) == 'table' then
  for name, value in pairs(found.counters) do
    if type(value) == 'number' and value == math.floor(value) then
      redis.pcall('HINCRBY', KEYS[2], '+' .. name, string.format('%.0f', value))
    end
  end
end
local write = string.match(redis.call('HGET', KEYS[2], whose .. ':p') or '0 ', '^(%d+) ')
redis.call('HDEL', KEYS[2], whose, whose .. ':s', whose .. ':c', whose .. ':p')
if ARGV[6] ~= '-1' and last then redis.call('HSET', KEYS[2], whose .. ':f', write or '0') end
redis.call('ZREM', KEYS[3], whose)
keep(ARGV[4], KEYS[2], KEYS[3])
return {'OK'}
