-- Shared by the scripts that a node sends. Needs common.lua.
-- KEYS[1] meta, KEYS[2] nodes, KEYS[3] beats; ARGV[2] the run's epoch, ARGV[3] `<node's id>.<memory>.<last write>`,
-- ARGV[4] lifetime of run keys.
--   LOST    the meta key is gone or belongs to a later life of the namespace: the run's keys were lost
--   NOTREG  the store doesn't know this node (any more): it must join again under a new id
--   BACK    the store doesn't know the last write of which the node was told that it was done: it went back to an earlier
--           state. What the node was told until then may be untrue, and its memory gets another name. With the last write
--           that is known, and the history, which is marked
local NODE, MEMORY, TOLD = string.match(ARGV[3], '^(%w+)%.([%w-]+)%.(%d+)$')
local LAST -- the node's last write: number, answer

local function stranger()
  if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[2] then return {'LOST'} end
  if not redis.call('ZSCORE', KEYS[3], NODE) then return {'NOTREG'} end
  LAST = redis.call('HGET', KEYS[2], NODE .. ':p')
  local number = tonumber(string.match(LAST or '', '^(%d+) ')) or 0
  if number < tonumber(TOLD) then
    redis.call('HDEL', KEYS[1], '')
    local server = string.match(redis.call('HGET', KEYS[1], 'history') or '', '^[^~]*')
    redis.call('HSET', KEYS[1], 'history', server .. '~' .. MEMORY)
    skip_numbers(KEYS[1])
    return {'BACK', whole(number), history_of(KEYS[1])}
  end
end

-- What a node puts or reads under one memory is true as long as the memory has this name: the store has not gone back
-- behind it, and no new seeding has begun.
local function memory()
  return MEMORY .. ':' .. (redis.call('HGET', KEYS[1], 'gen') or '0')
end

-- Writes carry a rising number, and the last answer is kept: the same number again (a repeat whose first answer got
-- lost) gets that answer, a lower one (a late duplicate) is refused.
local function write_done_before(op)
  if not LAST then return nil end
  local number, answer = string.match(LAST, '^(%d+) (.*)$')
  number = tonumber(number)
  if not number or op > number then return nil end
  if op == number then return {'AGAIN', answer, history_of(KEYS[1])} end
  return {'STALEOP', whole(number)}
end

local function remember_write(op, answer)
  redis.call('HSET', KEYS[2], NODE .. ':p', whole(op) .. ' ' .. answer)
end
