-- Compares the identity of the server with the identity recorded for the cluster, and records it.
--
-- KEYS: identity, generation. ARGV: replication id, the previous one, a new generation ('': a failover is trusted).
local known = redis.call('GET', KEYS[1])
local state = 'same'
if known ~= ARGV[1] then
  redis.call('SET', KEYS[1], ARGV[1])
  state = 'restarted'
  if known and known == ARGV[2] then
    state = 'promoted'
    if ARGV[3] ~= '' then redis.call('SET', KEYS[2], ARGV[3]) end
  end
end
return {state, redis.call('GET', KEYS[2]) or '0'}
