--[[
seed: the seeding lock: take it, renew it, finish it.

KEYS    1 meta   2 nodes   3 beats   4 lock:seed
ARGV    1 now   2 epoch   3 node   4 lifetime   5 what: acquire, renew, seeded or failed   6 token   7 who
        8 ms after which a seeding lock without renewal is abandoned   9 lifetime of the key in ms   10 error text (failed)
        11 acquire: may seed again after *failed* (1 or 0)   12 stale ms
        13 seeded, failed: the memory under which the lock was taken, or ''
RETURN  acquire {'OK', 'mine', history} or {'OK', 'other', lock text, ms left, now, history}
        renew, seeded, failed {'OK', 1 or 0}   0: the lock is somebody else's, nothing is changed
        seeded, failed {'OK', 2, history}   the memory has another name now: seeds may be lost, nothing is changed
        {'LOST'}  {'NOTREG'}  {'BACK', last, history}
Values: `seeding <token> <ms> <who>`, `seeded <ms> <who>`, `failed <ms> <who> <error>`; any other value (join
refuses it; it came later) counts as seeded. An abandoned lock goes to the next one to ask. It is judged by the time in its value, so
that a key that is gone always means the same: deleted by hand or outlived, start anew.
No lock begins a new seeding generation: item fingerprints and confirmed repeats of the earlier one no longer count.
]]
--@include common
--@include node
local no = stranger()
if no then return no end
local bad = wrong_type(KEYS[4], 'string')
if bad then return bad end
local now = now_ms()
local what, token, who = ARGV[5], ARGV[6], ARGV[7]
local lock = redis.call('GET', KEYS[4])
local owner, at = string.match(lock or '', '^seeding (%S+) (%d+)')
local mine = owner == token

if what == 'acquire' then
  local abandoned = owner and math.abs(now - tonumber(at)) > tonumber(ARGV[8])
  local retry = lock and string.sub(lock, 1, 7) == 'failed ' and ARGV[11] == '1'
    and live_nodes(KEYS[3], now, tonumber(ARGV[12])) <= 1
  if mine or not lock or abandoned or retry then
    if not lock then redis.call('HINCRBY', KEYS[1], 'gen', 1) end
    redis.call('SET', KEYS[4], 'seeding ' .. token .. ' ' .. whole(now) .. ' ' .. who, 'PX', ARGV[9])
    return {'OK', 'mine', history_of(KEYS[1])}
  end
  return {'OK', 'other', lock, redis.call('PTTL', KEYS[4]), whole(now), history_of(KEYS[1])}
end

if not mine then return {'OK', 0} end
if what ~= 'renew' and ARGV[13] ~= '' and ARGV[13] ~= memory() then return {'OK', 2, history_of(KEYS[1])} end
-- A removal first, so that the lock can be kept when memory is full.
redis.call('DEL', KEYS[4])
if what == 'renew' then
  redis.call('SET', KEYS[4], 'seeding ' .. token .. ' ' .. whole(now) .. ' ' .. who, 'PX', ARGV[9])
elseif what == 'seeded' then
  redis.call('SET', KEYS[4], 'seeded ' .. whole(now) .. ' ' .. who, 'PX', ARGV[9])
else
  redis.call('SET', KEYS[4], 'failed ' .. whole(now) .. ' ' .. who .. ' ' .. ARGV[10], 'PX', ARGV[9])
end
return {'OK', 1}
