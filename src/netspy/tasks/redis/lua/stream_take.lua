--[[
stream_take: entries into a consumer's hands: first those whose consumer is gone, then new ones, in order.

KEYS    1 stream
ARGV    1 group   2 consumer   3 limit   4 ms without a sign of life after which an entry is anybody's
RETURN  {id, fields and values, deliveries} for each
An entry that comes back a second time may end its process: it comes alone.
]]
local found = {}
local function claim(id, deliveries)
  local entry = redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, id)[1]
  if entry and entry[2] then
    found[#found + 1] = {entry[1], entry[2], deliveries}
  else  -- deleted while it was pending
    redis.call('XACK', KEYS[1], ARGV[1], id)
  end
end
local limit, alone = tonumber(ARGV[3]), false
for _, pending in ipairs(redis.call('XPENDING', KEYS[1], ARGV[1], 'IDLE', ARGV[4], '-', '+', limit)) do
  alone = pending[4] >= 2
  if not alone then
    claim(pending[1], pending[4] + 1)
  elseif #found == 0 then
    claim(pending[1], pending[4] + 1)
    if #found > 0 then return found end
  else
    return found
  end
end
if #found < limit then
  local fresh = redis.call('XREADGROUP', 'GROUP', ARGV[1], ARGV[2], 'COUNT', limit - #found, 'STREAMS', KEYS[1], '>')
  for _, entry in ipairs(fresh and fresh[1] and fresh[1][2] or {}) do
    found[#found + 1] = {entry[1], entry[2], 1}
  end
end
return found
