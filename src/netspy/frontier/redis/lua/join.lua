--[[
join: check the namespace and register as a node.

KEYS    1 meta   2 nodes   3 beats   then the keys whose types are checked
ARGV    1 now   2 epoch: to join again, the one this node knows; '' at start   3 epoch to give a new namespace   4 lifetime
        5 owner class   6 owner kind   7 format version   8 take over (1 or 0)   9 JSON report   10 server run id
        11 Bloom layout line, or ''   12 position in KEYS of the dedup layout, followed by count, set and the layers
        13 position of the same keys of the item filter, which end before the former   14 position of lock:seed
        15 the id to register under, made at random: a number counted here would go back with the store and be given twice
        16 to join again, the id so far   17 the last write of which it was told that it was done
        then the type of each key from KEYS[4] on
RETURN  {'OK', kept (1 or 0), epoch, history, layout found}   kept: the node was forgotten, and its writes were not
        {'TYPE', key, found, wanted}…   {'OWNER', class, kind}   {'VERSION', found}   {'LAYOUT', found or '', key}   {'LOST'}
        {'FOREIGN', key}   {'LOCK', key, value}   {'COUNT', key, value}   at start only: another program's
Nothing is changed unless the answer is OK.
]]
--@include common
local types = {[1] = 'hash', [2] = 'hash', [3] = 'zset'}
for i = 4, #KEYS do types[i] = ARGV[17 + i - 3] end
local wrong = {}
for i, key in ipairs(KEYS) do
  local found = redis.call('TYPE', key).ok
  if found ~= 'none' and found ~= types[i] then
    for _, text in ipairs({'TYPE', key, found, types[i]}) do wrong[#wrong + 1] = text end
  end
end
if #wrong > 0 then return wrong end

local epoch = redis.call('HGET', KEYS[1], 'epoch')
if ARGV[2] == '' then
  local lock = redis.call('GET', KEYS[tonumber(ARGV[14])])
  if lock and not (string.match(lock, '^seeding %S+ %d+ ') or string.match(lock, '^seeded %d+ ')
      or string.match(lock, '^failed %d+ ')) then
    return {'LOCK', KEYS[tonumber(ARGV[14])], lock}
  end
  for _, at in ipairs({ARGV[12], ARGV[13]}) do
    local count = redis.call('GET', KEYS[tonumber(at) + 1])
    if count and not string.match(count, '^%d+$') then return {'COUNT', KEYS[tonumber(at) + 1], count} end
  end
  -- What the item filter keeps is deleted when a new seeding begins. Its marks say that it is ours.
  local first, last = tonumber(ARGV[13]), tonumber(ARGV[12]) - 1
  local marks = redis.call('HMGET', KEYS[first], 'gen', 'marks')
  if not (marks[1] or marks[2]) then
    for i = first, last do
      if redis.call('EXISTS', KEYS[i]) == 1 then return {'FOREIGN', KEYS[i]} end
    end
  end
end
if ARGV[2] ~= '' and epoch ~= ARGV[2] then return {'LOST'} end
if epoch then
  local version, class, kind = unpack(redis.call('HMGET', KEYS[1], 'version', 'class', 'kind'))
  if version ~= ARGV[7] then return {'VERSION', version or ''} end
  if ARGV[2] == '' and ARGV[8] ~= '1' and (class ~= ARGV[5] or kind ~= ARGV[6]) then return {'OWNER', class or '', kind or ''} end
end
local layout = ''
if ARGV[11] ~= '' then
  local at = tonumber(ARGV[12])
  layout = redis.call('HGET', KEYS[at], 'layout') or ''
  if layout ~= ARGV[11] then
    for i = at + 3, #KEYS do
      if redis.call('EXISTS', KEYS[i]) == 1 then return {'LAYOUT', layout, KEYS[i]} end
    end
  end
end

local now = now_ms()
if not epoch then
  epoch = ARGV[3]
  redis.call('HSET', KEYS[1], 'epoch', epoch, 'version', ARGV[7], 'created', whole(now))
end
follow_server(KEYS[1], ARGV[10])
-- A node that joins again doesn't claim the namespace back from a class that took it over meanwhile.
if ARGV[2] == '' then redis.call('HSET', KEYS[1], 'class', ARGV[5], 'kind', ARGV[6]) end
local node = ARGV[15]
local last = tonumber(redis.call('HGET', KEYS[2], ARGV[16] .. ':f') or '')
if last then redis.call('HDEL', KEYS[2], ARGV[16] .. ':f') end
redis.call('ZADD', KEYS[3], whole(now), node)
redis.call('HSET', KEYS[2], node, ARGV[9], node .. ':s', whole(now))
keep(ARGV[4], KEYS[1], KEYS[2], KEYS[3])
return {'OK', last and last >= tonumber(ARGV[17]) and 1 or 0, epoch, history_of(KEYS[1]), layout}
