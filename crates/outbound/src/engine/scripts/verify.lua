-- Compares the identity of the server with the identity that the cluster has recorded, and records the server's
-- identity. From then on, delayed commands of the port's earlier connections are refused.
-- KEYS:
--   1 identity that the cluster has recorded
--   2 generation
--   3 fence
--   4 number of stored publications
--   5 number of stored publications when this server was first verified
-- ARGV:
--   1 replication id of the server
--   2 previous replication id of the server
--   3 name of a new generation ('': failovers are trusted)
--   4 number of the connection
--   5 milliseconds for which the fence is stored
--   6 replication id at the port's last connection ('': none)
--   7 number of stored publications according to the last reply on that connection
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
-- If the server was started without some publications that this port has seen, a channel's stored publications are
-- valid only once a node has compared the channel (check.lua). A suffix of the generation after '/' marks this state.
if ARGV[3] ~= '' and ARGV[6] ~= '' and ARGV[6] ~= ARGV[1]
  and tonumber(ARGV[7]) > tonumber(redis.call('GET', KEYS[5]) or '0') then
  local begun = string.match(redis.call('GET', KEYS[2]) or '0', '^[^/]*')
  if begun ~= ARGV[3] then redis.call('SET', KEYS[2], begun .. '/' .. ARGV[3]) end
end
local number = tonumber(ARGV[4])
-- The fence is the number of the port's latest connection. The first connection needs none, and a delayed command of an
-- earlier connection must not lower it.
if number > 1 and number >= tonumber(redis.call('GET', KEYS[3]) or '0') then
  redis.call('SET', KEYS[3], ARGV[4], 'PX', ARGV[5])
end
return {state, redis.call('GET', KEYS[2]) or '0'}
