-- Shared by reclaim and sweep: may this node take leases from others? Needs common.lua and node.lua.
-- Its own heartbeats must have been unbroken for `stale` ms, and the last one must be fresh.
local function unsteady(now, stale, gap)
  local last = tonumber(redis.call('ZSCORE', KEYS[3], NODE))
  local since = tonumber(redis.call('HGET', KEYS[2], NODE .. ':s') or '') or now
  return now < last or now - last > gap or now - since < stale
end
