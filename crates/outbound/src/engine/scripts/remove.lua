-- Removes the publications of a channel; its position stays.
-- KEYS: stream, fence
-- ARGV: number of the connection
local fence = redis.call('GET', KEYS[2])
-- A later connection has repeated it, and there may be newer ones since.
if fence and tonumber(fence) > tonumber(ARGV[1]) then return 0 end
return redis.call('DEL', KEYS[1])
