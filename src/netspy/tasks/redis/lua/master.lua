--[[
master: the batch master's lock, and what only its holder may write.

KEYS    1 batch_monitor_lock   2 batch_master (hash)   then the keys that the words below name
ARGV    1 now or ''   2 what   3 token   then
        acquire  who, ms that the lock lasts, least fence   {1, fence, round} or {0, lock text, ms it has left}
        renew    ms                                      {1} or {0, lock text, ms}
        release                                          {1} or {0, lock text, ms}
        push     tasks; KEYS 3 batch_pending             {1, length} or {0, …}
        begin    batch; KEYS 3 batch_done   4… the fingerprints of the batch before     {1} or {0, …}
        again    round                                   {1} or {0, …}
        done     batch, seconds that the mark lasts; KEYS 3 batch_done                  {1} or {0, …}
        tell     progress as JSON; KEYS 3 batch_progress                                {1} or {0, …}
The round rises within a batch whenever lost tasks are to be handed out again: their requests must not look known.
The fence is a number that rises with every acquisition; the database refuses writes with a lower one than it has seen.
]]
local what, token = ARGV[2], ARGV[3]
local lock = redis.call('GET', KEYS[1])
local mine = lock and string.match(lock, '^(%S+)') == token
if what == 'acquire' then
  if lock and not mine then return {0, lock, redis.call('PTTL', KEYS[1])} end
  local fence = math.max(redis.call('HINCRBY', KEYS[2], 'fence', 1), tonumber(ARGV[6]))
  redis.call('HSET', KEYS[2], 'fence', string.format('%.0f', fence))
  redis.call('SET', KEYS[1], token .. ' ' .. string.format('%.0f', fence) .. ' ' .. ARGV[4], 'PX', ARGV[5])
  return {1, fence, tonumber(redis.call('HGET', KEYS[2], 'round') or 0)}
end
if not mine then return {0, lock or '', lock and redis.call('PTTL', KEYS[1]) or -2} end
if what == 'renew' then
  redis.call('PEXPIRE', KEYS[1], ARGV[4])
elseif what == 'release' then
  redis.call('DEL', KEYS[1])
elseif what == 'push' then
  for i = 4, #ARGV, 1000 do redis.call('RPUSH', KEYS[3], unpack(ARGV, i, math.min(i + 999, #ARGV))) end
  return {1, redis.call('LLEN', KEYS[3])}
elseif what == 'begin' then
  for i = 3, #KEYS do
    local wanted = string.match(KEYS[i], ':layout$') and 'hash' or string.match(KEYS[i], ':set$') and 'set' or 'string'
    local found = redis.call('TYPE', KEYS[i]).ok
    if found ~= wanted and found ~= 'none' then
      return redis.error_reply('NETSPYTYPE ' .. KEYS[i] .. ' is a ' .. found .. ', not a ' .. wanted)
    end
  end
  redis.call('HDEL', KEYS[2], 'round')
  redis.call('UNLINK', unpack(KEYS, 3))
elseif what == 'again' then
  redis.call('HSET', KEYS[2], 'round', ARGV[4])
elseif what == 'done' then
  redis.call('SET', KEYS[3], ARGV[4], 'EX', ARGV[5])
elseif what == 'tell' then
  redis.call('SET', KEYS[3], ARGV[4])
else
  return redis.error_reply('NETSPYARGS master: no such word ' .. what)
end
return {1}
