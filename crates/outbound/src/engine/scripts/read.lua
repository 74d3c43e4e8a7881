-- Reads publications of a channel together with the channel's position.
-- KEYS: meta, stream, generation
-- ARGV:
--   1 epoch to use if a new one begins
--   2 position ttl
--   3 offset after which publications are read; with direction reverse, the offset before which they are read ('': none)
--   4 limit
--   5 direction (forward, reverse, latest)
--   6 mark: the current time plus the history ttl and the position ttl (missing: the position ttl is set each time)
--   7 by how much the mark may differ from the stored mark y before the position ttl is set again (missing if 6 is)
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
