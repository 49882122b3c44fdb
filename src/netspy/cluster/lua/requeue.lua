--[[
requeue: move failed requests back to the queue, under new sequence numbers and without their history.

KEYS    1 meta   2 failed_requests   3 z_requests
ARGV    1 lifetime of run keys in ms (0 = for ever)   then for each: the record as it stands in the list, site, priority, JSON
RETURN  how many were moved; a record that is no longer in the list is passed over
The repeat filter is not asked: the request is known already.
]]
local n = (#ARGV - 1) / 4
for i = 2, #ARGV, 4 do
  local prio = tonumber(ARGV[i + 2])
  if #ARGV[i + 1] ~= 8 or not prio or prio - prio ~= 0 or string.sub(ARGV[i + 3] or '', 1, 1) ~= '{' then
    return redis.error_reply('NETSPYARGS requeue: record ' .. ((i - 2) / 4) .. ' is malformed')
  end
end
for key, wanted in pairs({[KEYS[2]] = 'list', [KEYS[3]] = 'zset'}) do
  local found = redis.call('TYPE', key).ok
  if found ~= wanted and found ~= 'none' then
    return redis.error_reply('NETSPYTYPE ' .. key .. ' is a ' .. found .. ', not a ' .. wanted)
  end
end
local seq = redis.call('HINCRBY', KEYS[1], 'seq', n) - n
local moved = 0
for i = 2, #ARGV, 4 do
  seq = seq + 1
  if redis.call('LREM', KEYS[2], 1, ARGV[i]) == 1 then
    redis.call('ZADD', KEYS[3], ARGV[i + 2], string.format('%015.0f', seq) .. '000' .. ARGV[i + 1] .. ARGV[i + 3])
    moved = moved + 1
  end
end
if ARGV[1] ~= '0' then
  for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, ARGV[1]) end
end
return moved
