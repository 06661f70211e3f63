"""The Lua scripts of the streams. Each makes one atomic change of state.

Scripts that acknowledge an entry do nothing if it was already acknowledged, so a call repeated after a lost
connection changes nothing. Scripts handle keys and arguments and never decode records.

Once an archive has joined, an entry of `traces` has two readers, the trainer and the archive. The first to
finish with it adds it to a set (`settled` or `archived`), and the second deletes it.
"""

FEED = """
-- For each position: its id and its bytes.
local cursor = tonumber(redis.call('HGET', KEYS[2], 'cursor') or '0')
if cursor ~= tonumber(ARGV[1]) then return cursor end
for i = 2, #ARGV, 2 do
  redis.call('XADD', KEYS[1], '*', 'id', ARGV[i], 'schema', 'rookery.v1.Position', 'data', ARGV[i + 1])
  cursor = cursor + 1
end
redis.call('HSET', KEYS[2], 'cursor', cursor)
return cursor
"""

_FORGET_TURNS = """
local function forget_turns(key, entry)
  local episodes = tonumber(redis.call('HGET', key, entry .. '/episodes') or '0')
  redis.call('HDEL', key, entry, entry .. '/episodes')
  for slot = 0, episodes - 1 do
    local number = 1
    while redis.call('HDEL', key, entry .. '/' .. slot .. '.' .. number) == 1 do number = number + 1 end
  end
end
"""

PUBLISH_GROUP = (
    _FORGET_TURNS
    + """
-- The run's reward version of a task is that of the task's first group, until ARGV[9] accepts another one.
local agreed = redis.call('HGET', KEYS[5], ARGV[7])
if agreed and agreed ~= ARGV[8] and ARGV[9] ~= ARGV[8] then return agreed end
if redis.call('XACK', KEYS[1], ARGV[1], ARGV[2]) == 0 then return 0 end
redis.call('XDEL', KEYS[1], ARGV[2])
redis.call('XADD', KEYS[2], '*', 'id', ARGV[3], 'version', ARGV[4], 'reward', ARGV[5],
  'schema', 'rookery.v1.TraceGroup', 'data', ARGV[6])
redis.call('HINCRBY', KEYS[3], 'generated', 1)
redis.call('HDEL', KEYS[4], ARGV[2])
forget_turns(KEYS[6], ARGV[2])
redis.call('HSET', KEYS[5], ARGV[7], ARGV[8])
return 1
"""
)

STORE_TURNS = """
-- What is stored as ARGV[3] of the position ARGV[2]: ARGV[4], unless there is something. '' if what is stored
-- as ARGV[5], on which it builds, has not the SHA-1 ARGV[6]. False if the position is not pending. The first
-- turns of all ARGV[7] episodes build on nothing.
if #redis.pcall('XPENDING', KEYS[1], ARGV[1], ARGV[2], ARGV[2], 1) == 0 then return false end
local before = ARGV[5] ~= '' and redis.call('HGET', KEYS[2], ARGV[5])
if ARGV[5] ~= '' and (not before or redis.sha1hex(before) ~= ARGV[6]) then return '' end
-- Faults before it were not due to the position: a long episode may have many.
if redis.call('HSETNX', KEYS[2], ARGV[3], ARGV[4]) == 1 then
  redis.call('HDEL', KEYS[3], ARGV[2])
  if ARGV[5] == '' then redis.call('HSET', KEYS[2], ARGV[2] .. '/episodes', ARGV[7]) end
end
return redis.call('HGET', KEYS[2], ARGV[3])
"""

READ_TURNS = """
local first = redis.call('HGET', KEYS[1], ARGV[1])
if not first then return {} end
local stored = {first}
for slot = 0, tonumber(redis.call('HGET', KEYS[1], ARGV[1] .. '/episodes')) - 1 do
  local number = 1
  repeat
    local turn = redis.call('HGET', KEYS[1], ARGV[1] .. '/' .. slot .. '.' .. number)
    if turn then table.insert(stored, turn) end
    number = number + 1
  until not turn
end
return stored
"""

COUNT_FAULT = """
if #redis.pcall('XPENDING', KEYS[1], ARGV[1], ARGV[2], ARGV[2], 1) == 0 then return 0 end
return redis.call('HINCRBY', KEYS[2], ARGV[2], 1)
"""

_LEAVE = """
-- The consumer has finished with an entry. KEYS[1] stream, KEYS[2] counts, KEYS[3] archive, KEYS[4] settled,
-- KEYS[5] archived. False if it had finished before: a recreated consumer group gets all entries again.
local function leave(entry)
  local limit = redis.call('HGET', KEYS[3], 'limit')
  if redis.call('SISMEMBER', KEYS[4], entry) == 1 then return false end
  if redis.call('SREM', KEYS[5], entry) == 0 and limit then
    local reader = redis.call('HGET', KEYS[3], 'group')
    local held = #redis.pcall('XPENDING', KEYS[1], reader, entry, entry, 1) > 0
    if held or redis.call('SCARD', KEYS[4]) < tonumber(limit) then
      redis.call('SADD', KEYS[4], entry)
      return true
    end
    redis.call('HINCRBY', KEYS[2], 'archive:missed', 1)
  end
  redis.call('XDEL', KEYS[1], entry)
  return true
end
"""

DEAD_LETTER = (
    _LEAVE
    + _FORGET_TURNS
    + """
if redis.call('XACK', KEYS[1], ARGV[1], ARGV[2]) == 0 then return 0 end
local entry = redis.call('XRANGE', KEYS[1], ARGV[2], ARGV[2])
local dead = {'stream', ARGV[3], 'entry', ARGV[2], 'reason', ARGV[4]}
if entry[1] then
  for _, value in ipairs(entry[1][2]) do table.insert(dead, value) end
end
if not leave(ARGV[2]) then return 0 end
redis.call('XADD', KEYS[6], 'MAXLEN', ARGV[5], '*', unpack(dead))
redis.call('HINCRBY', KEYS[2], 'dead:' .. ARGV[3], 1)
redis.call('HDEL', KEYS[7], ARGV[2])
forget_turns(KEYS[8], ARGV[2])
return 1
"""
)

SETTLE = (
    _LEAVE
    + """
if redis.call('GET', KEYS[6]) ~= ARGV[2] then return -1 end
local settled = 0
for i = 4, #ARGV do
  if redis.call('XACK', KEYS[1], ARGV[1], ARGV[i]) == 1 and leave(ARGV[i]) then settled = settled + 1 end
end
if settled > 0 then redis.call('HINCRBY', KEYS[2], ARGV[3], settled) end
return settled
"""
)

JOIN_ARCHIVE = """
if redis.call('HSETNX', KEYS[3], 'group', ARGV[1]) == 1 then
  local before = tonumber(redis.call('HGET', KEYS[2], 'generated') or '0')
  before = before - redis.call('XLEN', KEYS[1]) + redis.call('SCARD', KEYS[5])
  redis.call('HINCRBY', KEYS[2], 'archive:before', before)
end
if redis.call('HGET', KEYS[3], 'group') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[3], 'limit', ARGV[2])
redis.pcall('XGROUP', 'CREATE', KEYS[1], ARGV[1], '0', 'MKSTREAM')
return 1
"""

ARCHIVED = """
-- After Redis lost its data, an archiver may read before it joins again. Until then, settled entries are
-- deleted although it holds them, and nothing is counted: `JOIN_ARCHIVE` counts these as `before`.
local joined, through = redis.call('HGET', KEYS[3], 'limit') ~= false, 0
for i = 3, #ARGV do
  if redis.call('XACK', KEYS[1], ARGV[1], ARGV[i]) == 1 then
    if redis.call('SREM', KEYS[4], ARGV[i]) == 1 then
      redis.call('XDEL', KEYS[1], ARGV[i])
      through = through + 1
    elseif #redis.call('XRANGE', KEYS[1], ARGV[i], ARGV[i]) > 0 then
      redis.call('SADD', KEYS[5], ARGV[i])
      through = through + 1
    end
  end
end
if joined and through > 0 then redis.call('HINCRBY', KEYS[2], 'archive:' .. ARGV[2], through) end
return through
"""

REPLAY_DEAD = """
local letter = redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[1])[1]
if not letter then return 0 end
local entry, stream = {}, ''
for i = 1, #letter[2], 2 do
  local name, value = letter[2][i], letter[2][i + 1]
  if name == 'stream' then
    stream = value
  elseif name ~= 'entry' and name ~= 'reason' then
    table.insert(entry, name)
    table.insert(entry, value)
  end
end
if #entry == 0 then return 0 end  -- it had left its stream before it was dead-lettered
redis.call('XADD', KEYS[2], '*', unpack(entry))
redis.call('XDEL', KEYS[1], ARGV[1])
if stream == 'traces' then redis.call('HINCRBY', KEYS[3], 'generated', 1) end
return 1
"""

_NEW_EPOCH = """
-- Microseconds since 1970, so that an epoch is new even if Redis has lost the newest ones.
local function new_epoch(last)
  local now = redis.call('TIME')
  return string.format('%.0f', math.max(tonumber(last or '0') + 1, now[1] * 1000000 + now[2]))
end
"""

TAKE_OVER_ARCHIVE = (
    _NEW_EPOCH
    + """
local epoch = new_epoch(redis.call('HGET', KEYS[1], ARGV[1]))
redis.call('HSET', KEYS[1], ARGV[1], epoch)
return epoch
"""
)

TAKE_OVER = (
    _NEW_EPOCH
    + """
-- KEYS[1] to KEYS[5] as in `leave`, KEYS[6] epoch. Corrects both accounts to match the stream.
local counts, settled, archived = redis.call('HGETALL', KEYS[2]), 0, 0
for i = 1, #counts, 2 do
  local name, value = counts[i], tonumber(counts[i + 1])
  local result = string.match(name, '^[^:]+')
  if name == 'trained' or name == 'dead:traces' or result == 'dropped' then settled = settled + value end
  if result == 'archive' then archived = archived + value end
end
local entries = redis.call('XLEN', KEYS[1])
local generated = tonumber(redis.call('HGET', KEYS[2], 'generated') or '0')
local astray = generated - settled - (entries - redis.call('SCARD', KEYS[4]))
if astray > 0 then redis.call('HINCRBY', KEYS[2], 'dropped:lost', astray) end
if astray < 0 then generated = redis.call('HINCRBY', KEYS[2], 'generated', -astray) end
local unarchived = entries - redis.call('SCARD', KEYS[5])
local missed = archived + unarchived < generated and redis.call('HGET', KEYS[3], 'limit') ~= false
if missed then redis.call('HINCRBY', KEYS[2], 'archive:missed', generated - archived - unarchived) end
local epoch = new_epoch(redis.call('GET', KEYS[6]))
redis.call('SET', KEYS[6], epoch)
return {epoch, astray}
"""
)

PUBLISH_POLICY = """
if redis.call('GET', KEYS[2]) ~= ARGV[1] then return -1 end
-- A call that is repeated after a lost connection may arrive twice, the second time after later versions.
local epoch, number = unpack(redis.call('HMGET', KEYS[1], 'epoch', 'number'))
if epoch == ARGV[1] and tonumber(number) > tonumber(ARGV[2]) then return 0 end
redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'number', ARGV[2], 'sha256', ARGV[3], 'path', ARGV[4],
  'base_model', ARGV[5], 'last', ARGV[6],
  'waiting', redis.call('XLEN', KEYS[3]) - redis.call('SCARD', KEYS[4]))
return 1
"""

AGREE = """
local differing = {}
for i = 1, #ARGV, 2 do
  redis.call('HSETNX', KEYS[1], ARGV[i], ARGV[i + 1])
  local agreed = redis.call('HGET', KEYS[1], ARGV[i])
  if agreed ~= ARGV[i + 1] then
    table.insert(differing, ARGV[i])
    table.insert(differing, agreed)
  end
end
return differing
"""

_FIELD = """
local function field(reply, name)
  for i = 1, #reply, 2 do
    if reply[i] == name then return reply[i + 1] end
  end
end
"""

CLAIM = (
    _FIELD
    + """
-- Takes over entries that have been idle for ARGV[3] ms: ARGV[4] or more, or all. KEYS as in `leave`.
local last, pending
if redis.call('EXISTS', KEYS[1]) == 1 then
  for _, group in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
    if field(group, 'name') == ARGV[1] then
      last, pending = field(group, 'last-delivered-id'), field(group, 'pending')
    end
  end
end
if not last then return false end

-- An entry between two that are pending or finished was delivered, and its consumer has been deleted since
-- (XGROUP DELCONSUMER). It is pending again, and idle. No others are read: entries of `traces` are large.
local finished = redis.call('HGET', KEYS[3], 'group') == ARGV[1] and KEYS[5] or KEYS[4]
local function place(id)
  local ms, number = string.match(id, '(%d+)-(%d+)')
  return {tonumber(ms), tonumber(number), id}
end
local function restore()
  local stop = place(last)
  stop = place(string.format('%.0f-%.0f', stop[1], stop[2] + 1))
  local known, start, restored = {stop}, '-', 0
  for _, id in ipairs(redis.call('SMEMBERS', finished)) do table.insert(known, place(id)) end
  for _, entry in ipairs(redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', pending)) do
    table.insert(known, place(entry[1]))
  end
  table.sort(known, function(a, b) return a[1] < b[1] or (a[1] == b[1] and a[2] < b[2]) end)
  for _, bound in ipairs(known) do
    for _, entry in ipairs(redis.call('XRANGE', KEYS[1], start, '(' .. bound[3], 'COUNT', 100)) do
      redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, entry[1], 'IDLE', ARGV[3], 'FORCE', 'JUSTID')
      restored = restored + 1
    end
    if bound == stop then return restored end
    start = '(' .. bound[3]
  end
end
local new = #redis.call('XRANGE', KEYS[1], '(' .. last, '+', 'COUNT', 1) > 0
local astray = 0
if new or redis.call('XLEN', KEYS[1]) ~= pending + redis.call('SCARD', finished) then astray = restore() end

local entries, deleted, cursor = {}, 0, '0-0'
repeat
  local claimed = redis.call(
    'XAUTOCLAIM', KEYS[1], ARGV[1], ARGV[2], ARGV[3], cursor, 'COUNT', ARGV[4], 'JUSTID')
  for _, id in ipairs(claimed[2]) do
    local entry = redis.call('XRANGE', KEYS[1], id, id)[1]
    if entry then
      table.insert(entries, entry)
    else  -- Redis 6.2 keeps an entry pending when it is deleted (XDEL)
      deleted = deleted + redis.call('XACK', KEYS[1], ARGV[1], id)
    end
  end
  cursor = claimed[1]
until cursor == '0-0' or #entries >= tonumber(ARGV[4])
return {entries, astray, deleted}
"""
)

BACKLOG = (
    _FIELD
    + """
-- KEYS[1] stream, KEYS[2] counts, KEYS[3] archive, KEYS[4] settled, KEYS[5] archived. The lag is computed,
-- because Redis has it only since 7.0, and not if an entry was deleted before its delivery.
local length, age, groups = redis.call('XLEN', KEYS[1]), 0, {}
local oldest = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)[1]
if oldest then
  local now = redis.call('TIME')
  age = now[1] * 1000 + math.floor(now[2] / 1000) - tonumber(string.match(oldest[1], '%d+'))
end
local archive = redis.call('HGET', KEYS[3], 'group')
if redis.call('EXISTS', KEYS[1]) == 1 then
  for _, group in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
    local name, pending, consumers = field(group, 'name'), field(group, 'pending'), {}
    -- Entries that this group has acknowledged are in the stream only for the other group.
    local through = redis.call('SCARD', name == archive and KEYS[5] or KEYS[4])
    for _, consumer in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], name)) do
      table.insert(consumers, {field(consumer, 'name'), field(consumer, 'pending'), field(consumer, 'idle')})
    end
    table.insert(groups, {name, length - pending - through, consumers})
  end
end
return {length, age, groups}
"""
)
