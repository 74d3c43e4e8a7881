-- Compares channels with what a node has seen of them.
-- KEYS: generation, fence, then meta and stream of each channel
-- ARGV: number of the connection, then for each channel: epoch to begin with, position ttl, epoch that was seen ('': none),
--       offset, id, whether to verify ('1'), epoch that has ended ('': none), the time plus both ttl, and by how much it
--       may grow until the position ttl is set again
local known = redis.call('MGET', KEYS[1], KEYS[2])
local generation = known[1] or '0'
-- A later connection has repeated these comparisons.
if known[2] and tonumber(known[2]) > tonumber(ARGV[1]) then return {} end

local function check(meta_key, stream_key, begun, ttl, seen_epoch, seen_offset, seen_id, verify, ended, mark, slack)
  local meta = redis.call('HMGET', meta_key, 'e', 's', 'g', 'i', 'x')
  local epoch, top, id = meta[1], meta[2] or '0', meta[4] or ''
  local is_new = not epoch or meta[3] ~= generation or epoch == ended
  local seen = tonumber(seen_offset)
  -- After a loss, only what a node has seen of a channel shows that nothing of it is missing.
  local is_suspect = epoch and is_new and verify == '1' and seen_epoch == epoch
    and string.match(meta[3], '^[^/]*') == string.match(generation, '^[^/]*')
  if is_suspect then is_new = false end
  if not is_new and verify == '1' and seen_epoch == epoch then
    local last = tonumber(top)
    if seen > last then
      is_new = true
    elseif seen == last then
      is_new = seen > 0 and id ~= seen_id and seen_id ~= ''
    elseif seen > 0 and seen_id ~= '' then
      local entry = redis.call('XRANGE', stream_key, seen_offset, seen_offset)[1]
      is_new = not entry or string.sub(entry[2][2], 2, 9) ~= seen_id
    end
  end
  if is_new then
    redis.call('DEL', meta_key, stream_key)
    epoch, top, id = begun, '0', ''
    redis.call('HSET', meta_key, 'e', epoch, 's', top, 'g', generation)
  end
  if is_suspect and not is_new then redis.call('HSET', meta_key, 'g', generation) end
  if is_new or not meta[5] or math.abs(tonumber(mark) - tonumber(meta[5])) > tonumber(slack) then
    redis.call('PEXPIRE', meta_key, ttl)
  end
  if seen_epoch ~= '' and tonumber(top) > seen then
    local latest = redis.call('XREVRANGE', stream_key, '+', '-', 'COUNT', 1)[1]
    if latest and string.match(latest[1], '^%d+') == top then
      return {epoch .. ':' .. top, id, latest[2][2]}
    end
  end
  return {epoch .. ':' .. top, id}
end

local found = {}
for n = 1, (#KEYS - 2) / 2 do
  local at = 2 + 9 * (n - 1)
  found[n] = check(KEYS[1 + 2 * n], KEYS[2 + 2 * n], ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4],
    ARGV[at + 5], ARGV[at + 6], ARGV[at + 7], ARGV[at + 8])
end
return found
