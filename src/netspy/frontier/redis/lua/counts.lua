--[[
counts: every collection of the run, read at one instant.

KEYS    1 meta   2 nodes   3 beats   4 z_requests   5 z_inflight   6 z_delayed   7 failed_requests   8 lock:seed   9 tasks
ARGV    1 now   2 epoch, or '' not to compare   3 as in node.lua   4 lifetime   5 stale ms
RETURN  {intact (1 or 0), queued, leased, delayed, failed, live nodes, ms to the next due or -1, lock or '', ms the lock has
        left (-1 no lifetime, -2 no lock), now, known (1 or 0), history, tasks open, done, failed}
]]
--@include common
local now = now_ms()
local epoch = redis.call('HGET', KEYS[1], 'epoch')
local due = redis.call('ZRANGE', KEYS[6], 0, 0, 'WITHSCORES')
return {
  (ARGV[2] == '' or epoch == ARGV[2]) and 1 or 0,
  redis.call('ZCARD', KEYS[4]), redis.call('ZCARD', KEYS[5]), redis.call('ZCARD', KEYS[6]), redis.call('LLEN', KEYS[7]),
  live_nodes(KEYS[3], now, tonumber(ARGV[5])),
  due[2] and math.max(0, math.ceil(tonumber(due[2]) - now)) or -1,
  redis.call('GET', KEYS[8]) or '', redis.call('PTTL', KEYS[8]), whole(now),
  redis.call('ZSCORE', KEYS[3], string.match(ARGV[3], '^%w*')) and 1 or 0, history_of(KEYS[1]),
  redis.call('HLEN', KEYS[9]), tonumber(redis.call('HGET', KEYS[1], 'tasks_done') or '0'),
  tonumber(redis.call('HGET', KEYS[1], 'tasks_failed') or '0'),
}
