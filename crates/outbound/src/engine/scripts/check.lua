-- Compares stored channels with the last position that a node has seen of each, begins a new epoch where they don't match, and
-- reads the latest publications of the channels for which a subscriber waits.
-- KEYS: generation, fence, then meta and stream of each channel
-- ARGV: number of the connection, then for each channel:
--   1 epoch to use if a new one begins
--   2 position ttl
--   3 epoch that the node has seen ('': none)
--   4 offset of the last publication that the node has seen
--   5 id of that publication
--   6 '1' to begin a new epoch if the store does not have that publication
--   7 epoch that has ended ('': none)
--   8 mark: the current time plus the history ttl and the position ttl
--   9 by how much the mark may differ from the stored mark y before the position ttl is set again
--   10 offset after which publications are read ('': none are read)
--   11 maximum number of publications that are read
-- Returns for each channel its position, the id of the latest publication, that publication if the node has not seen it, and the
-- publications that were read; or 1 if the channel is as the node has seen it.
local known = redis.call('MGET', KEYS[1], KEYS[2])
local generation = known[1] or '0'
-- A command with a lower connection number is late and is ignored: a newer connection has repeated the comparisons.
if known[2] and tonumber(known[2]) > tonumber(ARGV[1]) then return {} end

local call, abs = redis.call, math.abs

local function check(meta_key, stream_key, meta, begun, ttl, seen_epoch, seen_offset, seen_id, verify, ended, mark, slack, since, limit)
  local epoch, top, id = meta[1], meta[2] or '0', meta[4] or ''
  local is_new = not epoch or meta[3] ~= generation or epoch == ended
  local seen = tonumber(seen_offset)
  -- After the store has lost publications, a channel keeps its epoch only if the last publication
  -- that a node has seen is still stored.
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
      local entry = call('XRANGE', stream_key, seen_offset, seen_offset)[1]
      is_new = not entry or string.sub(entry[2][2], 2, 9) ~= seen_id
    end
  end
  if is_new then
    call('DEL', meta_key, stream_key)
    epoch, top, id = begun, '0', ''
    call('HSET', meta_key, 'e', epoch, 's', top, 'g', generation, 'y', mark)
  end
  if is_suspect and not is_new then call('HSET', meta_key, 'g', generation) end
  if is_new then
    call('PEXPIRE', meta_key, ttl)
  elseif not meta[5] or abs(tonumber(mark) - tonumber(meta[5])) > tonumber(slack) then
    call('PEXPIRE', meta_key, ttl)
    call('HSET', meta_key, 'y', mark)
  end
  local newest = false
  if seen_epoch ~= '' and tonumber(top) > seen then
    local latest = call('XREVRANGE', stream_key, '+', '-', 'COUNT', 1)[1]
    if latest and string.match(latest[1], '^%d+') == top then newest = latest[2][2] end
  end
  if since == '' then return {epoch .. ':' .. top, id, newest} end
  return {epoch .. ':' .. top, id, newest, call('XREVRANGE', stream_key, '+', '(' .. since .. '-0', 'COUNT', limit)}
end

local found = {}
local at = 2
for n = 1, (#KEYS - 2) / 2 do
  local meta_key = KEYS[1 + 2 * n]
  local meta = call('HMGET', meta_key, 'e', 's', 'g', 'i', 'y')
  -- The usual case: the channel is as the node has seen it, and its lifetime was set a short time ago.
  if meta[1] == ARGV[at + 2] and meta[2] == ARGV[at + 3] and (meta[4] or '') == ARGV[at + 4] and meta[3] == generation
    and meta[1] ~= ARGV[at + 6] and meta[5] and abs(ARGV[at + 7] - meta[5]) <= ARGV[at + 8] + 0 and ARGV[at + 9] == '' then
    found[n] = 1
  else
    found[n] = check(meta_key, KEYS[2 + 2 * n], meta, ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4],
      ARGV[at + 5], ARGV[at + 6], ARGV[at + 7], ARGV[at + 8], ARGV[at + 9], ARGV[at + 10])
  end
  at = at + 11
end
return found
