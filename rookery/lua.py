"""The Lua scripts of `rookery.streams`: each makes one change of state in one atomic step.

A script that acknowledges does nothing else unless the acknowledgement was still owed, so a call
repeated after a lost connection changes nothing. They know keys and arguments, never records.
"""

FEED = """
local cursor = tonumber(redis.call('HGET', KEYS[2], 'cursor') or '0')
if cursor ~= tonumber(ARGV[1]) then return cursor end
for i = 2, #ARGV, 2 do
  redis.call('XADD', KEYS[1], '*', 'id', ARGV[i], 'schema', 'rookery.v1.Position', 'data', ARGV[i + 1])
end
cursor = cursor + (#ARGV - 1) / 2
redis.call('HSET', KEYS[2], 'cursor', cursor)
return cursor
"""

PUBLISH_GROUP = """
if redis.call('XACK', KEYS[1], ARGV[1], ARGV[2]) == 0 then return 0 end
redis.call('XDEL', KEYS[1], ARGV[2])
redis.call('XADD', KEYS[2], '*', 'id', ARGV[3], 'version', ARGV[4], 'reward', ARGV[5],
  'schema', 'rookery.v1.TraceGroup', 'data', ARGV[6])
redis.call('HINCRBY', KEYS[3], 'generated', 1)
return 1
"""

DEAD_LETTER = """
if redis.call('XACK', KEYS[1], ARGV[1], ARGV[2]) == 0 then return 0 end
local entry = redis.call('XRANGE', KEYS[1], ARGV[2], ARGV[2])
local dead = {'stream', ARGV[3], 'entry', ARGV[2], 'reason', ARGV[4]}
if entry[1] then
  for _, value in ipairs(entry[1][2]) do table.insert(dead, value) end
end
redis.call('XADD', KEYS[2], '*', unpack(dead))
redis.call('XDEL', KEYS[1], ARGV[2])
redis.call('HINCRBY', KEYS[3], 'dead:' .. ARGV[3], 1)
return 1
"""

SETTLE = """
if redis.call('GET', KEYS[3]) ~= ARGV[2] then return -1 end
local settled = 0
for i = 4, #ARGV do
  if redis.call('XACK', KEYS[1], ARGV[1], ARGV[i]) == 1 then
    redis.call('XDEL', KEYS[1], ARGV[i])
    settled = settled + 1
  end
end
if settled > 0 then redis.call('HINCRBY', KEYS[2], ARGV[3], settled) end
return settled
"""

PUBLISH_POLICY = """
if redis.call('GET', KEYS[2]) ~= ARGV[1] then return -1 end
redis.call('HSET', KEYS[1], 'number', ARGV[2], 'sha256', ARGV[3], 'path', ARGV[4], 'base_model', ARGV[5])
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
