-- Fingerprint collections. Needs common.lua.
--
-- A fingerprint is 16 bytes. In a Bloom layer its first 48 bits choose a 64-byte block; each of the block's sixteen
-- little-endian 32-bit words gets one bit, chosen by 5 of the other 80 bits. One read and one write per fingerprint.
-- The layout line `block1 <error> <capacity>:<blocks> …` says how to read the bits; it is kept beside them.
local bit_and, bit_or, shift_right = bit.band, bit.bor, bit.rshift
local FMT_IN = '<I4I4I4I4I4I4I4I4I4I4I4I4I4I4I4I4'
local FMT_OUT = '<i4i4i4i4i4i4i4i4i4i4i4i4i4i4i4i4'
local BIT = {}
for i = 0, 31 do BIT[i] = bit.lshift(1, i) end

-- The block number (to be taken modulo the layer's blocks) and one mask per word. Written out, without tables or loops:
-- it runs once per fingerprint.
local function split(id)
  local hi, lo, a, x, b, y = struct.unpack('>I2I4BI4BI4', id)
  local c, d = a * 4 + shift_right(x, 30), b * 4 + shift_right(y, 30)
  return hi * 4294967296 + lo,
    BIT[bit_and(x, 31)], BIT[bit_and(shift_right(x, 5), 31)], BIT[bit_and(shift_right(x, 10), 31)],
    BIT[bit_and(shift_right(x, 15), 31)], BIT[bit_and(shift_right(x, 20), 31)], BIT[bit_and(shift_right(x, 25), 31)],
    BIT[bit_and(c, 31)], BIT[shift_right(c, 5)],
    BIT[bit_and(y, 31)], BIT[bit_and(shift_right(y, 5), 31)], BIT[bit_and(shift_right(y, 10), 31)],
    BIT[bit_and(shift_right(y, 15), 31)], BIT[bit_and(shift_right(y, 20), 31)], BIT[bit_and(shift_right(y, 25), 31)],
    BIT[bit_and(d, 31)], BIT[shift_right(d, 5)]
end

local EMPTY = string.rep('\0', 64)

local function read_block(key, at)
  local block = redis.call('GETRANGE', key, at, at + 63)
  if #block < 64 then block = block .. string.sub(EMPTY, #block + 1) end
  return block
end

-- nil when all bits are set, else the block with them set
local function merged(block, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16)
  local w1, w2, w3, w4, w5, w6, w7, w8, w9, w10, w11, w12, w13, w14, w15, w16 = struct.unpack(FMT_IN, block)
  if bit_and(w1, m1) ~= 0 and bit_and(w2, m2) ~= 0 and bit_and(w3, m3) ~= 0 and bit_and(w4, m4) ~= 0
    and bit_and(w5, m5) ~= 0 and bit_and(w6, m6) ~= 0 and bit_and(w7, m7) ~= 0 and bit_and(w8, m8) ~= 0
    and bit_and(w9, m9) ~= 0 and bit_and(w10, m10) ~= 0 and bit_and(w11, m11) ~= 0 and bit_and(w12, m12) ~= 0
    and bit_and(w13, m13) ~= 0 and bit_and(w14, m14) ~= 0 and bit_and(w15, m15) ~= 0 and bit_and(w16, m16) ~= 0 then
    return nil
  end
  return struct.pack(FMT_OUT, bit_or(w1, m1), bit_or(w2, m2), bit_or(w3, m3), bit_or(w4, m4), bit_or(w5, m5), bit_or(w6, m6), bit_or(w7, m7), bit_or(w8, m8),
    bit_or(w9, m9), bit_or(w10, m10), bit_or(w11, m11), bit_or(w12, m12), bit_or(w13, m13), bit_or(w14, m14), bit_or(w15, m15), bit_or(w16, m16))
end

local function holds(block, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16)
  local w1, w2, w3, w4, w5, w6, w7, w8, w9, w10, w11, w12, w13, w14, w15, w16 = struct.unpack(FMT_IN, block)
  return bit_and(w1, m1) ~= 0 and bit_and(w2, m2) ~= 0 and bit_and(w3, m3) ~= 0 and bit_and(w4, m4) ~= 0
    and bit_and(w5, m5) ~= 0 and bit_and(w6, m6) ~= 0 and bit_and(w7, m7) ~= 0 and bit_and(w8, m8) ~= 0
    and bit_and(w9, m9) ~= 0 and bit_and(w10, m10) ~= 0 and bit_and(w11, m11) ~= 0 and bit_and(w12, m12) ~= 0
    and bit_and(w13, m13) ~= 0 and bit_and(w14, m14) ~= 0 and bit_and(w15, m15) ~= 0 and bit_and(w16, m16) ~= 0
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
  local function known(except, number, ...)
    for i = 1, layers do
      if live[i] and i ~= except and holds(read_block(key[i], (number % blocks[i]) * 64), ...) then return true end
    end
    return false
  end
  c.has = function(id)
    if live_layers == 0 then return false end
    return known(0, split(id))
  end
  local prepared = false
  local function insert(number, ...)
    local at = (number % blocks[current]) * 64
    local block = merged(live[current] and read_block(key[current], at) or EMPTY, ...)
    if not block then return false end
    if live_layers > (live[current] and 1 or 0) and known(current, number, ...) then return false end
    if not prepared then
      -- Take the layer's memory at once: growing it piece by piece would copy it again and again.
      if redis.call('STRLEN', key[current]) < blocks[current] * 64 then
        redis.call('SETRANGE', key[current], blocks[current] * 64 - 1, '\0')
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
  c.add = function(id) return insert(split(id)) end
  c.finish = function()
    if added > 0 then
      count = redis.call('INCRBY', count_key, added)
      keep(ttl, layout_key, count_key, unpack(key))
    end
    return count
  end
  return nil, c
end
