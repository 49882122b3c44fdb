--[[
beat: "I am alive", and who else is.

KEYS    1 meta   2 nodes   3 beats   4… the other keys of the run, whose lifetime is renewed
ARGV    1 now   2 epoch   3 node   4 lifetime   5 JSON report   6 ms after which a node is stale   7 longest unbroken gap in ms
        8 renew lifetimes (1 or 0)
RETURN  {'OK', ms since my beats are unbroken, live nodes, history, stale node ids…}  {'NOTREG'}  {'LOST'}  {'BACK', last, history}
After an outage or a jump of the server's clock every heartbeat is old, though all nodes may be healthy. So a gap in a
node's own beats starts its unbroken time anew, and only a node unbroken for longer than `stale` takes over others' leases.
]]
--@include common
--@include node
local no = stranger()
if no then return no end
local now = now_ms()
local last = tonumber(redis.call('ZSCORE', KEYS[3], NODE))
local since = tonumber(redis.call('HGET', KEYS[2], NODE .. ':s') or '0') or now
if now - last > tonumber(ARGV[7]) or now < last then since = now end
redis.call('HDEL', KEYS[2], '')
redis.call('ZADD', KEYS[3], whole(now), NODE)
redis.call('HSET', KEYS[2], NODE, ARGV[5], NODE .. ':s', whole(since))
if ARGV[8] == '1' then keep(ARGV[4], unpack(KEYS)) end
keep(ARGV[4], KEYS[2], KEYS[3])
local edge = tonumber(ARGV[6])
local stale = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', '(' .. whole(now - edge))
for _, node in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '(' .. whole(now + edge), '+inf')) do stale[#stale + 1] = node end
return {'OK', now - since, live_nodes(KEYS[3], now, edge), history_of(KEYS[1]), unpack(stale)}
