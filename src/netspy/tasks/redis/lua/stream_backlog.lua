--[[
stream_backlog: what the group still has, read at one instant.

KEYS    1 stream   2 stream:failed
ARGV    1 group   2 up to how many waiting ones are counted exactly
RETURN  {waiting, taken, failed}, or the error NOGROUP
Entries stay in the stream for other groups when this one is done with them, so its length alone says too much.
]]
if redis.call('EXISTS', KEYS[1]) == 1 then
  for _, told in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
    local info = {}
    for i = 1, #told, 2 do info[told[i]] = told[i + 1] end
    if info['name'] == ARGV[1] then
      local most = tonumber(ARGV[2])
      local waiting = #redis.call('XRANGE', KEYS[1], '(' .. info['last-delivered-id'], '+', 'COUNT', most)
      if waiting == most then
        waiting = math.max(most, redis.call('XLEN', KEYS[1]) - info['pending'])
      end
      return {waiting, info['pending'], redis.call('XLEN', KEYS[2])}
    end
  end
end
return redis.error_reply('NOGROUP no such group')
