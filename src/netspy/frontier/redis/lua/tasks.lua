-- The requests of each task, counted where they move. Needs common.lua and entry.lua.
-- A member's body, what follows its priority, is `@task{json}` for a request of a task and `{json}` for any other one.
--   tasks    hash, task → `n f h`: n requests not done, f failed, h = 1 while the task is still being turned into requests
--   closing  hash, task → `a` or `f` (to be told always, or only when a request failed), site and JSON of a last request
-- A task is closed by the step that leaves it without requests; its last request is queued in that step, with the body
-- `@!f{json}`, and counts for no task.
local FIRST = '-1000000' -- the last requests of tasks come before all others
local TASKS = {}

local function body_of(member, from)
  local at = find(member, '[{@]', from)
  return at and sub(member, at) or ''
end

local function tag_of(body)
  if string.byte(body) == 64 then return string.match(body, '^@[^{]*') or '' end
  return ''
end

local function task_named(key, task)
  local t = TASKS[task]
  if not t then
    local n, f, h = string.match(redis.call('HGET', key, task) or '', '^(%-?%d+) (%d+) (%d)$')
    t = {tonumber(n) or 0, tonumber(f) or 0, tonumber(h) or 0}
    TASKS[task] = t
  end
  return t
end

-- `requests` and `failures` are changes.
local function task_moved(key, body, requests, failures)
  if string.byte(body) ~= 64 then return end
  local task = string.match(body, '^@([^!{][^{]*)')
  if not task then return end
  local t = task_named(key, task)
  t[1] = t[1] + requests
  t[2] = t[2] + failures
end

local function write_tasks(key, closing, meta, queue, lifetime)
  local any = false
  for task, t in pairs(TASKS) do
    any = true
    if t[1] > 0 or t[3] == 1 then
      redis.call('HSET', key, task, math.max(0, t[1]) .. ' ' .. t[2] .. ' ' .. t[3])
    else
      redis.call('HDEL', key, task)
      redis.call('HINCRBY', meta, t[2] > 0 and 'tasks_failed' or 'tasks_done', 1)
      local last = redis.call('HGET', closing, task)
      if last then
        redis.call('HDEL', closing, task)
        if t[2] > 0 or sub(last, 1, 1) == 'a' then
          local seq = redis.call('HINCRBY', meta, 'seq', 1)
          redis.call('ZADD', queue, FIRST, new_entry(seq, sub(last, 2, 9), '@!' .. t[2] .. sub(last, 10)))
        end
      end
    end
  end
  if any then keep(lifetime, key, closing, meta, queue) end
end
