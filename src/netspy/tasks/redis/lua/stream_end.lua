--[[
stream_end: what becomes of taken entries.

KEYS    1 stream   2 stream:failed
ARGV    1 group   2 consumer   3 what: keep, settled, failed or release   then for each entry its id, and the error
        (failed) or ''
RETURN  how many of them were still this consumer's (settled: still pending)
An entry that is done with is deleted when no other group still waits for it: it is others' as well as ours.
]]
local SOON = 1000000000  -- idle for so long that the next one who takes has it
local MOST = 6000  -- names and values of one entry that Lua can hand to a command
local group, me, what = ARGV[1], ARGV[2], ARGV[3]

local function less(a, b)
  return #a < #b or (#a == #b and a < b)
end

local function after(one, other)
  local a, b = string.match(one, '^(%d+)-(%d+)$')
  local c, d = string.match(other, '^(%d+)-(%d+)$')
  return less(c, a) or (a == c and less(d, b))
end

local function pending(of, id)
  return redis.call('XPENDING', KEYS[1], of, id, id, 1)[1]
end

local others = {}
if (what == 'settled' or what == 'failed') and redis.call('EXISTS', KEYS[1]) == 1 then
  for _, told in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
    local info = {}
    for i = 1, #told, 2 do info[told[i]] = told[i + 1] end
    if info['name'] ~= group then others[#others + 1] = info end
  end
end

local function wanted(id)
  for _, other in ipairs(others) do
    if after(id, other['last-delivered-id']) or pending(other['name'], id) then return true end
  end
  return false
end

local found = 0
for i = 4, #ARGV, 2 do
  local id = ARGV[i]
  if what == 'settled' then
    found = found + redis.call('XACK', KEYS[1], group, id)
    if not wanted(id) then redis.call('XDEL', KEYS[1], id) end
  else
    local mine = pending(group, id)
    if mine and mine[2] == me then
      found = found + 1
      if what == 'keep' then
        redis.call('XCLAIM', KEYS[1], group, me, 0, id, 'IDLE', 0, 'JUSTID')
      elseif what == 'release' then
        redis.call('XCLAIM', KEYS[1], group, me, 0, id, 'IDLE', SOON, 'RETRYCOUNT', math.max(0, mine[4] - 1), 'JUSTID')
      elseif what == 'failed' then
        local entry = redis.call('XRANGE', KEYS[1], id, id)[1]
        local copy = {}
        local had = entry and #entry[2] or 0
        for n = 1, math.min(had, MOST) do copy[n] = entry[2][n] end
        if had > MOST then
          copy[#copy + 1] = 'left-out'
          copy[#copy + 1] = (had - MOST) / 2 .. ' of ' .. had / 2 .. ' fields'
        end
        copy[#copy + 1] = 'error'
        copy[#copy + 1] = ARGV[i + 1]
        if entry then redis.call('XADD', KEYS[2], '*', unpack(copy)) end
        redis.call('XACK', KEYS[1], group, id)
        if not wanted(id) then redis.call('XDEL', KEYS[1], id) end
      end
    end
  end
end
return found
