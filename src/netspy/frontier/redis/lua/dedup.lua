-- Fingerprint collections. Needs common.lua.
--
-- A fingerprint is 16 bytes, read as little-endian numbers. In a Bloom layer its first 4 bytes choose a block of 128
-- bytes; each of the block's sixteen segments of 64 bits gets one bit, chosen by 6 of the other 96 bits. One read and
-- one write per fingerprint.
-- The layout line `block2 <error> <capacity>:<blocks> …` says how to read the bits; it is kept beside them.
--
-- Bit m (a power of two) of the number w is clear when w % (m + m) < m, and then w + m has it set: plain arithmetic,
-- several times cheaper here than calls of the bit library. Numbers stay below 2^32, as Lua's are doubles.
local byte = string.byte
local WORDS = '<' .. string.rep('I4', 32)
local BIT = {
  [0] = 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096,
  8192, 16384, 32768, 65536, 131072, 262144, 524288, 1048576, 2097152, 4194304, 8388608, 16777216, 33554432,
  67108864, 134217728, 268435456, 536870912, 1073741824, 2147483648,
}
local EMPTY = string.rep('\0', 128)

-- The positions 0..63 of the fingerprint at hand in its sixteen segments.
local P = {}

-- Fill P and return the block number, to be taken modulo the layer's blocks. Written out, like `merged`: these two run
-- once per fingerprint.
local function split(id)
  local number, a, b, c, d = struct.unpack('<I4I3I3I3I3', id)
  local p
  p = a % 64; P[1] = p; a = (a - p) / 64
  p = a % 64; P[2] = p; a = (a - p) / 64
  p = a % 64; P[3] = p; P[4] = (a - p) / 64
  p = b % 64; P[5] = p; b = (b - p) / 64
  p = b % 64; P[6] = p; b = (b - p) / 64
  p = b % 64; P[7] = p; P[8] = (b - p) / 64
  p = c % 64; P[9] = p; c = (c - p) / 64
  p = c % 64; P[10] = p; c = (c - p) / 64
  p = c % 64; P[11] = p; P[12] = (c - p) / 64
  p = d % 64; P[13] = p; d = (d - p) / 64
  p = d % 64; P[14] = p; d = (d - p) / 64
  p = d % 64; P[15] = p; P[16] = (d - p) / 64
  return number
end

local function read_block(key, at)
  local block = redis.call('GETRANGE', key, at, at + 127)
  if #block < 128 then block = block .. string.sub(EMPTY, #block + 1) end
  return block
end

-- Are all bits of P set? Stops at the first clear one, mostly the first or second for a new fingerprint.
local function holds(block)
  for i = 1, 16 do
    local p = P[i]
    local low = p % 8
    local m = BIT[low]
    if byte(block, 8 * i - 7 + (p - low) / 8) % (m + m) < m then return false end
  end
  return true
end

-- nil when all bits of P are set, else the block with them set
local function merged(block)
  local w1, w2, w3, w4, w5, w6, w7, w8, w9, w10, w11, w12, w13, w14, w15, w16,
    w17, w18, w19, w20, w21, w22, w23, w24, w25, w26, w27, w28, w29, w30, w31, w32 = struct.unpack(WORDS, block)
  local new, p, m = false, 0, 0
  p = P[1]
  if p < 32 then m = BIT[p]; if w1 % (m + m) < m then w1, new = w1 + m, true end
  else m = BIT[p - 32]; if w2 % (m + m) < m then w2, new = w2 + m, true end end
  p = P[2]
  if p < 32 then m = BIT[p]; if w3 % (m + m) < m then w3, new = w3 + m, true end
  else m = BIT[p - 32]; if w4 % (m + m) < m then w4, new = w4 + m, true end end
  p = P[3]
  if p < 32 then m = BIT[p]; if w5 % (m + m) < m then w5, new = w5 + m, true end
  else m = BIT[p - 32]; if w6 % (m + m) < m then w6, new = w6 + m, true end end
  p = P[4]
  if p < 32 then m = BIT[p]; if w7 % (m + m) < m then w7, new = w7 + m, true end
  else m = BIT[p - 32]; if w8 % (m + m) < m then w8, new = w8 + m, true end end
  p = P[5]
  if p < 32 then m = BIT[p]; if w9 % (m + m) < m then w9, new = w9 + m, true end
  else m = BIT[p - 32]; if w10 % (m + m) < m then w10, new = w10 + m, true end end
  p = P[6]
  if p < 32 then m = BIT[p]; if w11 % (m + m) < m then w11, new = w11 + m, true end
  else m = BIT[p - 32]; if w12 % (m + m) < m then w12, new = w12 + m, true end end
  p = P[7]
  if p < 32 then m = BIT[p]; if w13 % (m + m) < m then w13, new = w13 + m, true end
  else m = BIT[p - 32]; if w14 % (m + m) < m then w14, new = w14 + m, true end end
  p = P[8]
  if p < 32 then m = BIT[p]; if w15 % (m + m) < m then w15, new = w15 + m, true end
  else m = BIT[p - 32]; if w16 % (m + m) < m then w16, new = w16 + m, true end end
  p = P[9]
  if p < 32 then m = BIT[p]; if w17 % (m + m) < m then w17, new = w17 + m, true end
  else m = BIT[p - 32]; if w18 % (m + m) < m then w18, new = w18 + m, true end end
  p = P[10]
  if p < 32 then m = BIT[p]; if w19 % (m + m) < m then w19, new = w19 + m, true end
  else m = BIT[p - 32]; if w20 % (m + m) < m then w20, new = w20 + m, true end end
  p = P[11]
  if p < 32 then m = BIT[p]; if w21 % (m + m) < m then w21, new = w21 + m, true end
  else m = BIT[p - 32]; if w22 % (m + m) < m then w22, new = w22 + m, true end end
  p = P[12]
  if p < 32 then m = BIT[p]; if w23 % (m + m) < m then w23, new = w23 + m, true end
  else m = BIT[p - 32]; if w24 % (m + m) < m then w24, new = w24 + m, true end end
  p = P[13]
  if p < 32 then m = BIT[p]; if w25 % (m + m) < m then w25, new = w25 + m, true end
  else m = BIT[p - 32]; if w26 % (m + m) < m then w26, new = w26 + m, true end end
  p = P[14]
  if p < 32 then m = BIT[p]; if w27 % (m + m) < m then w27, new = w27 + m, true end
  else m = BIT[p - 32]; if w28 % (m + m) < m then w28, new = w28 + m, true end end
  p = P[15]
  if p < 32 then m = BIT[p]; if w29 % (m + m) < m then w29, new = w29 + m, true end
  else m = BIT[p - 32]; if w30 % (m + m) < m then w30, new = w30 + m, true end end
  p = P[16]
  if p < 32 then m = BIT[p]; if w31 % (m + m) < m then w31, new = w31 + m, true end
  else m = BIT[p - 32]; if w32 % (m + m) < m then w32, new = w32 + m, true end end
  if not new then return nil end
  return struct.pack(WORDS, w1, w2, w3, w4, w5, w6, w7, w8, w9, w10, w11, w12, w13, w14, w15, w16,
    w17, w18, w19, w20, w21, w22, w23, w24, w25, w26, w27, w28, w29, w30, w31, w32)
end

-- k: position in KEYS of the layout, followed by the count, the exact set, and the layers.
-- Returns an error reply before anything is written, or nil and an object with
--   has(id)   is it known
--   add(id)   make it known, true when it was new
--   finish()  write what is left to write, return the count
local function collection(kind, k, layout, ttl)
  local layout_key, count_key, set_key = KEYS[k], KEYS[k + 1], KEYS[k + 2]
  local c = {}
  if kind == 'none' then
    c.has = function() return false end
    c.add = function() return true end
    c.finish = function() return 0 end
    return nil, c
  end
  if kind == 'set' then
    local bad = wrong_type(set_key, 'set')
    if bad then return bad end
    c.has = function(id) return redis.call('SISMEMBER', set_key, id) == 1 end
    c.add = function(id) return redis.call('SADD', set_key, id) == 1 end
    c.finish = function()
      keep(ttl, set_key)
      return redis.call('SCARD', set_key)
    end
    return nil, c
  end

  local bad = wrong_type(layout_key, 'hash') or wrong_type(count_key, 'string')
  if bad then return bad end
  local capacity, blocks, layers = {}, {}, 0
  for cap, blk in string.gmatch(layout, '(%d+):(%d+)') do
    layers = layers + 1
    capacity[layers], blocks[layers] = tonumber(cap), tonumber(blk)
  end
  local key = {}
  for i = 1, layers do
    key[i] = KEYS[k + 2 + i]
    bad = wrong_type(key[i], 'string')
    if bad then return bad end
  end
  local found = redis.call('HGET', layout_key, 'layout')
  local fresh = not found
  if found ~= layout then
    for i = 1, layers do
      if redis.call('EXISTS', key[i]) == 1 then
        return redis.error_reply('NETSPYLAYOUT ' .. key[i] .. ' holds bits of another layout (' .. (found or 'unmarked')
          .. '), this program uses (' .. layout .. ')')
      end
    end
    fresh = true
  end
  local count_text = redis.call('GET', count_key) or '0'
  local count = tonumber(count_text)
  if not count then return redis.error_reply('NETSPYTYPE ' .. count_key .. ' is not a number') end
  if fresh then count = 0 end

  local current, room = 1, capacity[1]
  local left = count
  while current < layers and left >= capacity[current] do
    left = left - capacity[current]
    current = current + 1
  end
  room = capacity[current] - left
  local added = 0

  -- Layers that hold bits; also above the current one when the count was deleted without them.
  local live = {}
  for i = 1, layers do live[i] = redis.call('STRLEN', key[i]) > 0 end
  local live_layers = 0
  for i = 1, layers do if live[i] then live_layers = live_layers + 1 end end
  local function known(except, number)
    for i = 1, layers do
      if live[i] and i ~= except and holds(read_block(key[i], (number % blocks[i]) * 128)) then return true end
    end
    return false
  end
  c.has = function(id)
    if live_layers == 0 then return false end
    return known(0, split(id))
  end
  local prepared = false
  c.add = function(id)
    local number = split(id)
    local at = (number % blocks[current]) * 128
    local block = live[current] and read_block(key[current], at) or EMPTY
    if live_layers > (live[current] and 1 or 0) and (holds(block) or known(current, number)) then return false end
    block = merged(block)
    if not block then return false end
    if not prepared then
      -- Take the layer's memory at once: growing it piece by piece would copy it again and again.
      if redis.call('STRLEN', key[current]) < blocks[current] * 128 then
        redis.call('SETRANGE', key[current], blocks[current] * 128 - 1, '\0')
      end
      if fresh then
        redis.call('DEL', layout_key, count_key)
        redis.call('HSET', layout_key, 'layout', layout)
        fresh = false
      end
      if not live[current] then live[current], live_layers = true, live_layers + 1 end
      prepared = true
    end
    redis.call('SETRANGE', key[current], at, block)
    added = added + 1
    room = room - 1
    if room <= 0 and current < layers then
      current = current + 1
      room = capacity[current]
      prepared = false
    end
    return true
  end
  c.finish = function()
    if added > 0 then
      count = redis.call('INCRBY', count_key, added)
      keep(ttl, layout_key, count_key, unpack(key))
    end
    return count
  end
  return nil, c
end
