--[[
status: everything a run shows, read at one instant.

KEYS    1 meta   2 nodes   3 beats   4 z_requests   5 z_inflight   6 z_delayed   7 failed_requests   8 lock:seed
        9 count of request fingerprints   10 exact set of them   11 open_tasks   12 batch_progress   13 batch_monitor_lock
ARGV    1 now or ''   2 stale ms
RETURN  {now, exists (1 or 0), queued, leased, delayed, failed, lock or '', ms the lock has left, fingerprints, class, kind,
        created ms, ms to the next due or -1, counters of nodes that have left {name, value…},
        nodes {id, last beat ms, JSON report…}, open tasks, batch progress or '', batch master or '', ms its lock has left}
]]
local function now_ms()
  if ARGV[1] ~= '' then return tonumber(ARGV[1]) end
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end
local now = now_ms()
local meta = redis.call('HMGET', KEYS[1], 'epoch', 'class', 'kind', 'created')
local due = redis.call('ZRANGE', KEYS[6], 0, 0, 'WITHSCORES')
local nodes = {}
local beats = redis.call('ZRANGE', KEYS[3], 0, -1, 'WITHSCORES')
for i = 1, #beats, 2 do
  nodes[#nodes + 1] = beats[i]
  nodes[#nodes + 1] = beats[i + 1]
  nodes[#nodes + 1] = redis.call('HGET', KEYS[2], beats[i]) or '{}'
end
local gone = {}
for _, name in ipairs(redis.call('HKEYS', KEYS[2])) do
  if string.sub(name, 1, 1) == '+' then
    gone[#gone + 1] = string.sub(name, 2)
    gone[#gone + 1] = redis.call('HGET', KEYS[2], name)
  end
end
local known = tonumber(redis.call('GET', KEYS[9]) or '0') or 0
if redis.call('TYPE', KEYS[10]).ok == 'set' then known = known + redis.call('SCARD', KEYS[10]) end
return {
  string.format('%.0f', now), meta[1] and 1 or 0,
  redis.call('ZCARD', KEYS[4]), redis.call('ZCARD', KEYS[5]), redis.call('ZCARD', KEYS[6]), redis.call('LLEN', KEYS[7]),
  redis.call('GET', KEYS[8]) or '', redis.call('PTTL', KEYS[8]), known, meta[2] or '', meta[3] or '', meta[4] or '0',
  due[2] and math.max(0, math.ceil(tonumber(due[2]) - now)) or -1, gone, nodes,
  redis.call('HLEN', KEYS[11]), redis.call('GET', KEYS[12]) or '', redis.call('GET', KEYS[13]) or '', redis.call('PTTL', KEYS[13]),
}
