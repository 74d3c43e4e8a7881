-- Stores a value of a table or removes it, and removes some expired values. Returns the number of the expired values that were
-- removed.
-- KEYS: values by name, expiry times by name
-- ARGV: name ('': only expired values are removed), value ('': the value is removed), expiry in seconds since 1970 ('': never)
local name = ARGV[1]
if name ~= '' then
  if ARGV[2] == '' then redis.call('HDEL', KEYS[1], name) else redis.call('HSET', KEYS[1], name, ARGV[2]) end
  if ARGV[2] ~= '' and ARGV[3] ~= '' then
    redis.call('ZADD', KEYS[2], ARGV[3], name)
  else
    redis.call('ZREM', KEYS[2], name)
  end
end
-- Removes up to 100 expired values. A call stores at most one value, so expired values don't
-- accumulate.
local over = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', redis.call('TIME')[1], 'LIMIT', 0, 100)
for _, ended in ipairs(over) do
  redis.call('HDEL', KEYS[1], ended)
  redis.call('ZREM', KEYS[2], ended)
end
return #over
