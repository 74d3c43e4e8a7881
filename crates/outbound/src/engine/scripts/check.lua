-- Compares a channel with what a node has seen of it.
-- KEYS: meta, stream, generation, fence
-- ARGV: epoch to begin with, position ttl, epoch that was seen ('': none), offset, id, whether to verify ('1'),
--       number of the connection, epoch that has ended ('': none)
local meta = redis.call('HMGET', KEYS[1], 'e', 's', 'g', 'i')
local known = redis.call('MGET', KEYS[3], KEYS[4])
local generation = known[1] or '0'
-- A later connection has repeated this comparison.
if known[2] and tonumber(known[2]) > tonumber(ARGV[7]) then return {} end
local epoch, top, id = meta[1], meta[2] or '0', meta[4] or ''
local is_new = not epoch or meta[3] ~= generation or epoch == ARGV[8]
local seen = tonumber(ARGV[4])
-- After a loss, only what a node has seen of a channel shows that nothing of it is missing.
local is_suspect = epoch and is_new and ARGV[6] == '1' and ARGV[3] == epoch
  and string.match(meta[3], '^[^/]*') == string.match(generation, '^[^/]*')
if is_suspect then is_new = false end
if not is_new and ARGV[6] == '1' and ARGV[3] == epoch then
  local last = tonumber(top)
  if seen > last then
    is_new = true
  elseif seen == last then
    is_new = seen > 0 and id ~= ARGV[5] and ARGV[5] ~= ''
  elseif seen > 0 and ARGV[5] ~= '' then
    local entry = redis.call('XRANGE', KEYS[2], ARGV[4], ARGV[4])[1]
    is_new = not entry or string.sub(entry[2][2], 2, 9) ~= ARGV[5]
  end
end
if is_new then
  redis.call('DEL', KEYS[1], KEYS[2])
  epoch, top, id = ARGV[1], '0', ''
  redis.call('HSET', KEYS[1], 'e', epoch, 's', top, 'g', generation)
end
if is_suspect and not is_new then redis.call('HSET', KEYS[1], 'g', generation) end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
if ARGV[3] ~= '' and tonumber(top) > seen then
  local latest = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)[1]
  if latest and string.match(latest[1], '^%d+') == top then
    return {epoch .. ':' .. top, id, latest[2][2]}
  end
end
return {epoch .. ':' .. top, id}
