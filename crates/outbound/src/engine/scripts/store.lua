-- Stores a value of a table, or removes it, and removes values whose time has passed. Returns the number of those.
-- KEYS: values by name, ends by name
-- ARGV: name ('': none is stored), value ('': it is removed), end in seconds since 1970 ('': none)
local name = ARGV[1]
if name ~= '' then
  if ARGV[2] == '' then redis.call('HDEL', KEYS[1], name) else redis.call('HSET', KEYS[1], name, ARGV[2]) end
  if ARGV[2] ~= '' and ARGV[3] ~= '' then
    redis.call('ZADD', KEYS[2], ARGV[3], name)
  else
    redis.call('ZREM', KEYS[2], name)
  end
end
-- More than one for each that is stored, so that they do not pile up.
local over = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', redis.call('TIME')[1], 'LIMIT', 0, 100)
for _, ended in ipairs(over) do
  redis.call('HDEL', KEYS[1], ended)
  redis.call('ZREM', KEYS[2], ended)
end
return #over
