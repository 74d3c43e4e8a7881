-- Removes the publications of a channel; the channel keeps its position.
-- KEYS: stream, fence
-- ARGV: number of the connection
local fence = redis.call('GET', KEYS[2])
-- Ignores a delayed command of an earlier connection: a later connection has repeated the command, and newer publications
-- may have arrived since.
if fence and tonumber(fence) > tonumber(ARGV[1]) then return 0 end
return redis.call('DEL', KEYS[1])
