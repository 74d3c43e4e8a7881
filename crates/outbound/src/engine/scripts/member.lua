-- Records that a client of a node has joined or left a channel. Returns whether the same user is a member on another node.
-- KEYS: members of the channel, channels with members of the node, nodes with members, fence
-- ARGV: node (16 digits), client, user, data ('': the client has left), channel, whether to look for the
--       user ('1'), prefix of leases, number of the connection
local fence = redis.call('GET', KEYS[4])
-- Ignores a delayed command of an earlier connection: a later connection has sent newer data.
if fence and tonumber(fence) > tonumber(ARGV[8]) then return 0 end
local field = ARGV[1] .. ARGV[2]
local is_elsewhere = 0
if ARGV[6] == '1' then
  local all = redis.call('HGETALL', KEYS[1])
  local user = #ARGV[3] .. ':' .. ARGV[3]
  for place = 1, #all, 2 do
    local node = string.sub(all[place], 1, 16)
    if node ~= ARGV[1] and string.sub(all[place + 1], 1, #user) == user
      and redis.call('EXISTS', ARGV[7] .. node) == 1 then
      is_elsewhere = 1
      break
    end
  end
end
if ARGV[4] == '' then
  if redis.call('HDEL', KEYS[1], field) == 1 and redis.call('HINCRBY', KEYS[2], ARGV[5], -1) <= 0 then
    redis.call('HDEL', KEYS[2], ARGV[5])
  end
elseif redis.call('HSET', KEYS[1], field, #ARGV[3] .. ':' .. ARGV[3] .. ARGV[4]) == 1 then
  redis.call('HINCRBY', KEYS[2], ARGV[5], 1)
  redis.call('SADD', KEYS[3], ARGV[1])
end
return is_elsewhere
