-- Removes members of nodes whose lease has ended. Returns the removed members, each with its channel and with '1' if the same
-- user is also a member on a node with a lease.
--
-- KEYS: nodes with members. ARGV: calling node; key prefixes of leases, of the channels of a node, and of the members of a
-- channel; maximum number of channels.
local gone = {}
local left = tonumber(ARGV[5])
for _, node in ipairs(redis.call('SMEMBERS', KEYS[1])) do
  if node ~= ARGV[1] and redis.call('EXISTS', ARGV[2] .. node) == 0 then
    for _, channel in ipairs(redis.call('HKEYS', ARGV[3] .. node)) do
      if left == 0 then return gone end
      left = left - 1
      local key = ARGV[4] .. channel
      local all = redis.call('HGETALL', key)
      local is_live, stays = {}, {}
      for place = 1, #all, 2 do
        local other = string.sub(all[place], 1, 16)
        if is_live[other] == nil then
          is_live[other] = other ~= node and redis.call('EXISTS', ARGV[2] .. other) == 1
        end
        local length, rest = string.match(all[place + 1], '^(%d+):(.*)$')
        if length and is_live[other] then stays[string.sub(rest, 1, tonumber(length))] = true end
      end
      for place = 1, #all, 2 do
        if string.sub(all[place], 1, 16) == node then
          redis.call('HDEL', key, all[place])
          local length, rest = string.match(all[place + 1], '^(%d+):(.*)$')
          if length then
            gone[#gone + 1] = channel
            gone[#gone + 1] = string.sub(rest, tonumber(length) + 1)
            gone[#gone + 1] = stays[string.sub(rest, 1, tonumber(length))] and '1' or '0'
          end
        end
      end
      redis.call('HDEL', ARGV[3] .. node, channel)
    end
    redis.call('SREM', KEYS[1], node)
  end
end
return gone
