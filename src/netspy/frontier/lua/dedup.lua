-- Fingerprint collections. Needs common.lua.
--
-- A fingerprint is 16 bytes. In a Bloom layer its first 48 bits choose a 64-byte block; each of the block's sixteen
-- little-endian 32-bit words gets one bit, chosen by 5 of the other 80 bits. One read and one write per fingerprint.
-- The layout line `block1 <error> <capacity>:<blocks> …` says how to read the bits; it is kept beside them.
local bit_and, bit_or, shift_left, shift_right = bit.band, bit.bor, bit.lshift, bit.rshift

local function masks_of(id)
  local hi, lo, a, x, b, y = struct.unpack('>HI4BI4BI4', id)
  local mask = {}
  local function half(from, top, low)
    for i = 0, 5 do mask[from + i] = shift_left(1, bit_and(shift_right(low, 5 * i), 31)) end
    local rest = top * 4 + shift_right(low, 30)
    mask[from + 6] = shift_left(1, bit_and(rest, 31))
    mask[from + 7] = shift_left(1, shift_right(rest, 5))
  end
  half(1, a, x)
  half(9, b, y)
  return hi * 4294967296 + lo, mask
end

local function read_block(key, at)
  local block = redis.call('GETRANGE', key, at, at + 63)
  if #block == 0 then return nil end
  if #block < 64 then block = block .. string.rep('\0', 64 - #block) end
  return block
end

local function all_set(block, mask)
  for i = 1, 16 do
    local word = struct.unpack('<I4', block, 4 * i - 3)
    if bit_and(word, mask[i]) == 0 then return false end
  end
  return true
end

local function with_bits(block, mask)
  if not block then
    return struct.pack('<i4i4i4i4i4i4i4i4i4i4i4i4i4i4i4i4', unpack(mask))
  end
  local w = {struct.unpack('<I4I4I4I4I4I4I4I4I4I4I4I4I4I4I4I4', block)}
  for i = 1, 16 do w[i] = bit_or(w[i], mask[i]) end
  return struct.pack('<i4i4i4i4i4i4i4i4i4i4i4i4i4i4i4i4', unpack(w, 1, 16))
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
  local function known(number, mask, except)
    for i = 1, layers do
      if live[i] and i ~= except then
        local block = read_block(key[i], (number % blocks[i]) * 64)
        if block and all_set(block, mask) then return true end
      end
    end
    return false
  end
  c.has = function(id)
    local number, mask = masks_of(id)
    return known(number, mask, 0)
  end
  local prepared = false
  c.add = function(id)
    local number, mask = masks_of(id)
    local at = (number % blocks[current]) * 64
    local block = live[current] and read_block(key[current], at)
    if block and all_set(block, mask) then return false end
    if known(number, mask, current) then return false end
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
      live[current] = true
      prepared = true
    end
    redis.call('SETRANGE', key[current], at, with_bits(block, mask))
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
