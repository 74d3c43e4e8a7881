-- Reads publications together with the position.
--
-- KEYS: meta, stream, generation. ARGV: epoch to use if a new one begins, position ttl, offset ('': none), limit, direction
-- (forward, reverse, latest), the current time plus both ttl (the mark), and by how much the mark may differ from the stored
-- one before the position ttl is set again.
local meta = redis.call('HMGET', KEYS[1], 'e', 's', 'g', 'y')
local generation = redis.call('GET', KEYS[3]) or '0'
local epoch, top = meta[1], meta[2] or '0'
local is_new = not epoch or meta[3] ~= generation
if is_new then
  redis.call('DEL', KEYS[1], KEYS[2])
  epoch, top = ARGV[1], '0'
  redis.call('HSET', KEYS[1], 'e', epoch, 's', top, 'g', generation)
end
if is_new or not ARGV[6] or not meta[4] or math.abs(tonumber(ARGV[6]) - tonumber(meta[4])) > tonumber(ARGV[7]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  if ARGV[6] then redis.call('HSET', KEYS[1], 'y', ARGV[6]) end
end
local list = {}
if ARGV[4] ~= '0' then
  local behind, before = '-', '+'
  if ARGV[5] == 'reverse' then
    if ARGV[3] ~= '' then before = '(' .. ARGV[3] .. '-0' end
    list = redis.call('XREVRANGE', KEYS[2], before, behind, 'COUNT', ARGV[4])
  else
    if ARGV[3] ~= '' then behind = '(' .. ARGV[3] .. '-0' end
    if ARGV[5] == 'latest' then
      list = redis.call('XREVRANGE', KEYS[2], before, behind, 'COUNT', ARGV[4])
    else
      list = redis.call('XRANGE', KEYS[2], behind, before, 'COUNT', ARGV[4])
    end
  end
end
return {epoch .. ':' .. top, list}
