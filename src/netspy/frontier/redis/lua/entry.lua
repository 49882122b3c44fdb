-- The entry format, version 1. Needs common.lua.
--   queued   seq15 d2 s1 dom8 body                      zset score = priority
--   delayed  seq15 d2 s1 dom8 prio body                 zset score = due time, server ms
--   leased   seq15 d2 s1 dom8 m1 node8 op6 prio body    zset score = deadline, server ms; node8 + op6 is the token
-- seq: sequence number, the entry's identity for life; d: deliveries; s: suspicion, one base-36 digit (0 = no lease of
-- it ever ran out, 1 = one did and nobody knows whether it had started, n + 1 = n ran out after a start); dom: hash of
-- the site; m: started in this lease; body: {json}, or @task{json} for a request of a task; prio runs up to the body.
local DIGITS = '0123456789abcdefghijklmnopqrstuvwxyz'
local QUEUED = '^%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%w%w%w%w%w%w%w%w%w[{@]'
local LONGEST = 4194304 + 512 -- bytes of an entry; no node writes a larger payload
local sub, find = string.sub, string.find

local function new_entry(seq, dom, body)
  return string.format('%015.0f', seq) .. '000' .. dom .. body
end

local function deliveries(member, change)
  local d = tonumber(sub(member, 16, 17)) + change
  if d < 0 then d = 0 elseif d > 99 then d = 99 end
  return string.format('%02d', d)
end

local function lease_of(queued, prio, token)
  -- The usual case, a first delivery without suspicion.
  if sub(queued, 16, 18) == '000' then
    return sub(queued, 1, 15) .. '010' .. sub(queued, 19, 26) .. '0' .. token .. prio .. sub(queued, 27)
  end
  local s = sub(queued, 18, 18)
  return sub(queued, 1, 15) .. deliveries(queued, 1) .. sub(queued, 18, 26) .. (s == '0' and '0' or '1') .. token
    .. prio .. sub(queued, 27)
end

-- priority text and body of a leased or a delayed member
local function tail_of(member, from)
  local at = find(member, '[{@]', from)
  if not at then return '300', '{}' end
  return sub(member, from, at - 1), sub(member, at)
end

-- The text of a priority, or nil for what ZADD would refuse or sort beyond all others.
local function number_text(text)
  local n = tonumber(text)
  if n and n - n == 0 and not find(text, '[^%d.eE+-]') then return text end
end

-- Whether what stands in `text` from there on is a body.
local function is_body(text, from)
  return text ~= nil and (find(text, '^{', from) or find(text, '^@[^{]+{', from)) ~= nil
end

-- Whether a delayed (from = 27) or leased (from = 42) member begins as one does, and has a payload.
local function is_entry(member, from)
  return #member <= LONGEST and find(member, '{', from, true) ~= nil
    and find(sub(member, 1, 26), '^%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%w%w%w%w%w%w%w%w%w$') ~= nil
end

local function failed_json(reason, text, attempts, now, prio, dom, body)
  local json = sub(body, find(body, '{', 1, true) or 1)
  return '{"reason":"' .. reason .. '","error":"' .. text .. '","attempts":' .. attempts .. ',"time":'
    .. string.format('%.3f', now / 1000) .. ',"priority":' .. prio .. ',"site":"' .. dom .. '","request":' .. json .. '}'
end

local function unreadable_json(member, now)
  return '{"reason":"unreadable","error":"not an entry of this format version","attempts":0,"time":'
    .. string.format('%.3f', now / 1000) .. ',"raw":' .. cjson.encode(sub(member, 1, 65536)) .. '}'
end

-- A lease that ran out: back to the queue with more suspicion, or to the failed list.
-- Returns the queued member and its priority, or nil and the failed record.
local function ran_out(member, now, limit, lease_off)
  local prio, body = tail_of(member, 42)
  if not is_entry(member, 42) or not number_text(prio) then return nil, unreadable_json(member, now) end
  local dom = sub(member, 19, 26)
  local attempts = tonumber(sub(member, 16, 17))
  if lease_off then
    return nil, failed_json('lease off', 'its node died, and with SPIDER_TASK_LEASE=0 nothing runs twice', attempts, now,
      prio, dom, body)
  end
  local s = math.min(tonumber(sub(member, 18, 18), 36) + 1, 35)
  if s > limit then
    return nil, failed_json('poison', 'its lease ran out ' .. (s - 1) .. ' times after a start', attempts, now, prio, dom,
      body)
  end
  return sub(member, 1, 17) .. sub(DIGITS, s + 1, s + 1) .. dom .. body, prio
end
