-- Shared by the scripts of a task list. KEYS as in take.lua; ARGV[1] is the time in ms that a test hands in, or ''.
local function now_ms()
  if ARGV[1] ~= '' then return tonumber(ARGV[1]) end
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

local function whole(x)
  return string.format('%.0f', x)
end

local function wrong_types()
  for i, wanted in ipairs({'list', 'zset', 'hash', 'list'}) do
    local found = redis.call('TYPE', KEYS[i]).ok
    if found ~= wanted and found ~= 'none' then
      return redis.error_reply('NETSPYTYPE ' .. KEYS[i] .. ' is a ' .. found .. ', not a ' .. wanted)
    end
  end
end

-- Sequence numbers are unique within an epoch: a list that was deleted and comes back has another one.
local function epoch_of(new)
  redis.call('HSETNX', KEYS[3], 'epoch', new)
  return redis.call('HGET', KEYS[3], 'epoch')
end

local function give_up(member, why, now)
  redis.call('RPUSH', KEYS[4], '{"error":' .. cjson.encode(why) .. ',"time":' .. string.format('%.3f', now / 1000)
    .. ',"deliveries":' .. (tonumber(string.sub(member, 16, 17)) or 0) .. ',"task":' .. cjson.encode(string.sub(member, 18)) .. '}')
end
