--[[
hello: the first script on every connection: which server process is this?

KEYS    1 meta
ARGV    1 the server's run id, as INFO gives it
RETURN  the store's history after that, '' when the namespace has no meta key (or another program's: `join` says so)
So every node learns that the server is another one, also one that sends nothing by which it would notice it.
]]
--@include common
if redis.call('TYPE', KEYS[1]).ok ~= 'hash' then return '' end
if not redis.call('HGET', KEYS[1], 'epoch') then return '' end
follow_server(KEYS[1], ARGV[1])
return history_of(KEYS[1])
