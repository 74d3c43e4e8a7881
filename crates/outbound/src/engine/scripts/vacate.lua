-- Removes the records of channels with subscribers on nodes whose lease has ended. Returns the time, and those channels that
-- have no subscribers on other nodes.
--
-- KEYS: nodes with such channels. ARGV: calling node; key prefixes of leases, of the channels of a node, and of the nodes of
-- a channel; maximum number of channels.
local time = redis.call('TIME')
local gone = {tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)}
local left = tonumber(ARGV[5])
for _, node in ipairs(redis.call('SMEMBERS', KEYS[1])) do
  if node ~= ARGV[1] and redis.call('EXISTS', ARGV[2] .. node) == 0 then
    for _, channel in ipairs(redis.call('SMEMBERS', ARGV[3] .. node)) do
      if left == 0 then return gone end
      left = left - 1
      local key = ARGV[4] .. channel
      if redis.call('HDEL', key, node) == 1 and redis.call('HLEN', key) == 0 then gone[#gone + 1] = channel end
      redis.call('SREM', ARGV[3] .. node, channel)
    end
    redis.call('SREM', KEYS[1], node)
  end
end
return gone
