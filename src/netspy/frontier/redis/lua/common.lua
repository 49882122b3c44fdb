-- Shared by all scripts. ARGV[1] is the time in ms that a test hands in, or '' for the server's own clock.
local function now_ms()
  if ARGV[1] ~= '' then return tonumber(ARGV[1]) end
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

-- Numbers above 2^31 print in scientific notation unless told otherwise.
local function whole(x)
  return string.format('%.0f', x)
end

-- An emptied collection is deleted and comes back without a lifetime, so every write of a run key sets it again. Where `+`
-- follows it, requests have none: a later run takes over what this one leaves.
local function keep(ttl, ...)
  if ttl == '0' then return end
  local ms, requests_stay = string.match(ttl, '^(%d+)(%+?)$')
  for _, key in ipairs({...}) do
    if requests_stay == '' or not (string.find(key, ':z_%l+$') or string.find(key, ':failed_requests$')
      or string.find(key, ':open_tasks')) then
      redis.call('PEXPIRE', key, ms)
    end
  end
end

-- Lua can hand over about 7,990 values in one call.
local function add_all(key, pairs_)
  for i = 1, #pairs_, 1000 do
    redis.call('ZADD', key, unpack(pairs_, i, math.min(i + 999, #pairs_)))
  end
end

local function remove_all(key, members)
  local removed = 0
  for i = 1, #members, 1000 do
    removed = removed + redis.call('ZREM', key, unpack(members, i, math.min(i + 999, #members)))
  end
  return removed
end

local function wrong_type(key, wanted)
  local found = redis.call('TYPE', key).ok
  if found ~= wanted and found ~= 'none' then
    return redis.error_reply('NETSPYTYPE ' .. key .. ' is a ' .. found .. ', not a ' .. wanted)
  end
end

-- The store's history: which server process this is, `~` and a mark for each time that somebody noticed that it had gone
-- back to an earlier state, and the seeding generation.
local function history_of(meta)
  local h = redis.call('HMGET', meta, 'history', 'gen')
  return (h[1] or '') .. ':' .. (h[2] or '0')
end

-- Sequence numbers that a store gave out and forgot are not given again: those who have them still put children in their name.
local function skip_numbers(meta)
  redis.call('HINCRBY', meta, 'seq', 1000000000)
end

-- The server process is written down, in the place of another one with its marks.
local function follow_server(meta, run_id)
  local known = redis.call('HGET', meta, 'history')
  if known and string.match(known, '^[^~]*') == run_id then return end
  redis.call('HDEL', meta, '')
  redis.call('HSET', meta, 'history', run_id)
  if known then skip_numbers(meta) end
end

-- A heartbeat this far from now is no sign of life: too old, or of a clock that was turned back since.
local function is_stale(beat, now, stale)
  return math.abs(now - tonumber(beat)) > stale
end

local function live_nodes(beats, now, stale)
  return redis.call('ZCOUNT', beats, whole(now - stale), whole(now + stale))
end
