-- Returns the nodes that have a lease, each with the lease's text, and removes the nodes without a lease
-- from the set of nodes.
--
-- KEYS: nodes. ARGV: prefix of leases.
local found = {}
for _, node in ipairs(redis.call('SMEMBERS', KEYS[1])) do
  local text = redis.call('GET', ARGV[1] .. node)
  if text then
    found[#found + 1] = node
    found[#found + 1] = text
  else
    redis.call('SREM', KEYS[1], node)
  end
end
return found
