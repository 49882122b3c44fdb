--[[
hello: the first script on every connection: which server process is this?

KEYS    1 meta
ARGV    1 the server's run id, as INFO gives it
RETURN  the store's history after that, '' when the namespace has no meta key (or another program's: `join` says so)
An acknowledgement that depends on an earlier put names the history it was put under, so this must be in the store before
any acknowledgement can arrive on this connection.
]]
if redis.call('TYPE', KEYS[1]).ok ~= 'hash' then return '' end
local known = redis.call('HGET', KEYS[1], 'epoch')
if not known then return '' end
if redis.call('HGET', KEYS[1], 'history') ~= ARGV[1] then
  redis.call('HDEL', KEYS[1], '')
  redis.call('HSET', KEYS[1], 'history', ARGV[1])
end
return ARGV[1] .. ':' .. (redis.call('HGET', KEYS[1], 'gen') or '0')
