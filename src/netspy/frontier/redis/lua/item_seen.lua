--[[
item_seen: which items were stored before, in this seeding generation?

KEYS    1 meta   2 dedup layout   3 dedup count   4 dedup set   5… layers
ARGV    1 now   2 dedup kind   3 lifetime   4 layout line   then the fingerprints
RETURN  one digit per fingerprint, 1 = known
]]
--@include common
--@include dedup
local err, known = collection(ARGV[2], 2, ARGV[4], ARGV[3])
if err then return err end
local current = redis.call('HGET', KEYS[1], 'gen') or '0'
local same = (redis.call('HGET', KEYS[2], 'gen') or '0') == current
local flags = {}
for i = 5, #ARGV do
  flags[#flags + 1] = same and known.has(ARGV[i]) and '1' or '0'
end
return table.concat(flags)
