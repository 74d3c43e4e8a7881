-- Compares the identity of the server with the one that the cluster knows, and records it. Shuts out the commands of
-- earlier connections of the port.
-- KEYS: identity, generation, fence, number of stored publications, that number when this server was started
-- ARGV: replication id, the one before it, a new generation ('': a failover is trusted), number of the connection,
--       milliseconds for which the fence is stored, the replication id that this port has known ('': none), the number of
--       stored publications that the port knew of then
local known = redis.call('GET', KEYS[1])
local state = 'same'
if known ~= ARGV[1] then
  redis.call('SET', KEYS[1], ARGV[1])
  redis.call('SET', KEYS[5], redis.call('GET', KEYS[4]) or '0')
  state = 'restarted'
  if known and known == ARGV[2] then
    state = 'promoted'
    if ARGV[3] ~= '' then redis.call('SET', KEYS[2], ARGV[3]) end
  end
end
-- The server lost publications that this port knows of: a channel's stored data is valid only where a node has compared
-- it, which the part after the '/' records.
if ARGV[3] ~= '' and ARGV[6] ~= '' and ARGV[6] ~= ARGV[1]
  and tonumber(ARGV[7]) > tonumber(redis.call('GET', KEYS[5]) or '0') then
  local begun = string.match(redis.call('GET', KEYS[2]) or '0', '^[^/]*')
  if begun ~= ARGV[3] then redis.call('SET', KEYS[2], begun .. '/' .. ARGV[3]) end
end
local number = tonumber(ARGV[4])
-- The first has none before it, and a delayed command of an earlier one lowers nothing.
if number > 1 and number >= tonumber(redis.call('GET', KEYS[3]) or '0') then
  redis.call('SET', KEYS[3], ARGV[4], 'PX', ARGV[5])
end
return {state, redis.call('GET', KEYS[2]) or '0'}
