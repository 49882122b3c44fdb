--[[
item_mark: these items are stored. Fingerprints of an earlier seeding generation are dropped first.

KEYS    1 meta   2 dedup layout   3 dedup count   4 dedup set   5… layers
ARGV    1 now   2 dedup kind   3 lifetime   4 layout line   then the fingerprints
RETURN  how many fingerprints are known
]]
--@include common
--@include dedup
local bad = wrong_type(KEYS[2], 'hash') or wrong_type(KEYS[1], 'hash') or wrong_type(KEYS[3], 'string') or wrong_type(KEYS[4], 'set')
for i = 5, #KEYS do bad = bad or wrong_type(KEYS[i], 'string') end
if bad then return bad end
local current = redis.call('HGET', KEYS[1], 'gen') or '0'
redis.call('HINCRBY', KEYS[2], 'marks', 1)
if (redis.call('HGET', KEYS[2], 'gen') or '0') ~= current then
  for i = 2, #KEYS do redis.call('UNLINK', KEYS[i]) end
end
local err, known = collection(ARGV[2], 2, ARGV[4], ARGV[3])
if err then return err end
for i = 5, #ARGV do known.add(ARGV[i]) end
local count = known.finish()
redis.call('HSET', KEYS[2], 'gen', current)
keep(ARGV[3], KEYS[2])
return count
