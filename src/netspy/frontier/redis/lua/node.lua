-- Shared by the scripts that a node sends. Needs common.lua.
-- KEYS[1] meta, KEYS[2] nodes, KEYS[3] beats; ARGV[2] the run's epoch, ARGV[3] the node's id, ARGV[4] lifetime of run keys.
--   LOST    the meta key is gone or belongs to a later life of the namespace: the run's keys were lost
--   NOTREG  the store doesn't know this node (any more): it must join again under a new id
local NODE = ARGV[3]

local function stranger()
  if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[2] then return {'LOST'} end
  if not redis.call('ZSCORE', KEYS[3], NODE) then return {'NOTREG'} end
end

-- Writes carry a rising number, and the last answer is kept: the same number again (a repeat whose first answer got
-- lost) gets that answer, a lower one (a late duplicate) is refused.
local function write_done_before(op)
  local last = redis.call('HGET', KEYS[2], NODE .. ':p')
  if not last then return nil end
  local number, answer = string.match(last, '^(%d+) (.*)$')
  number = tonumber(number)
  if not number or op > number then return nil end
  if op == number then return {'AGAIN', answer, history_of(KEYS[1])} end
  return {'STALEOP', whole(number)}
end

local function remember_write(op, answer)
  redis.call('HSET', KEYS[2], NODE .. ':p', whole(op) .. ' ' .. answer)
end
