-- Records that a channel has subscribers on a node, or no longer has any. Returns whether this changes the channel's
-- occupancy in the cluster (the node is the first one with subscribers, or was the last one), and the time.
-- KEYS: nodes with subscribers of the channel, channels with subscribers on the node, nodes with such channels, fence
-- ARGV: node (16 digits), channel, whether the node has subscribers ('1'), whether this repeats an attempt whose reply was
--       lost ('1'), number of the connection
local fence = redis.call('GET', KEYS[4])
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
-- Ignores a delayed command of an earlier connection: a later connection has repeated the command.
if fence and tonumber(fence) > tonumber(ARGV[5]) then return {0, now} end
local known = redis.call('HGET', KEYS[1], ARGV[1])
if ARGV[3] == '1' then
  -- The node is already recorded. A repetition gets the result of the earlier attempt.
  if known then return {ARGV[4] == '1' and tonumber(known) or 0, now} end
  local is_first = redis.call('HLEN', KEYS[1]) == 0 and 1 or 0
  redis.call('HSET', KEYS[1], ARGV[1], is_first)
  redis.call('SADD', KEYS[2], ARGV[2])
  redis.call('SADD', KEYS[3], ARGV[1])
  return {is_first, now}
end
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('SREM', KEYS[2], ARGV[2])
-- If the node was not recorded and this is not a repetition, the node's lease has probably ended and another node may
-- have reported the channel as vacated. The result is then 0, so that the channel is not reported twice.
local is_last = (known or ARGV[4] == '1') and redis.call('HLEN', KEYS[1]) == 0
return {is_last and 1 or 0, now}
