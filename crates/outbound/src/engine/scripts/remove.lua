-- Removes the publications of a channel; the channel keeps its position.
-- KEYS: stream, fence
-- ARGV: number of the connection
local fence = redis.call('GET', KEYS[2])
-- Ignores a delayed command: a later connection of the port has repeated it, and there may be newer publications since.
if fence and tonumber(fence) > tonumber(ARGV[1]) then return 0 end
return redis.call('DEL', KEYS[1])
