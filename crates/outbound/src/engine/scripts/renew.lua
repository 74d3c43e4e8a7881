-- Renews the lease of a node. Returns whether the lease had ended.
--
-- KEYS: lease, nodes. ARGV: node, text, milliseconds until the lease ends.
local before = redis.call('GET', KEYS[1])
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
redis.call('SADD', KEYS[2], ARGV[1])
if before then return 0 end
return 1
