-- Assigns an offset to a publication, stores it, and publishes it to the feeds of the nodes.
-- KEYS:
--   1 meta: epoch, latest offset and other properties of the channel
--   2 stream: publications of the channel
--   3 generation
--   4 result for the idempotency key
--   5 fence: number of the port's latest connection
--   6 number of stored publications
-- ARGV:
--   1 topic
--   2 head of the message
--   3 data
--   4 history size ('': the publication is not stored)
--   5 ttl
--   6 position ttl
--   7 epoch to use if a new one begins
--   8 ttl of the idempotency key ('': no key)
--   9 version of 20 digits ('': none)
--   10 epoch of the version
--   11 offset after which an earlier attempt may have stored the publication ('': no earlier attempt)
--   12 epoch of that offset
--   13 number of the connection
--   14 mark: the current time plus the configured history ttl and position ttl (missing: the lifetimes are set each time)
--   15 by how much the mark may differ from the stored mark before the lifetimes are set again (missing if 14 is)
local known = redis.call('MGET', KEYS[3], KEYS[5])
local generation = known[1] or '0'
-- Refuses a delayed command of an earlier connection, because a later connection has repeated the command.
if known[2] and tonumber(known[2]) > tonumber(ARGV[13]) then return {'unknown'} end
-- The last byte of the id is the number of the attempt; check.lua needs it to compare a channel
-- with a restarted store. All attempts to store one publication share the other bytes.
local id = string.sub(ARGV[3], 2, 9)
local common = string.sub(ARGV[3], 2, 8)
local is_keyed = ARGV[8] ~= ''
if is_keyed then
  -- The id (8 bytes) and the position of the first publication with this key.
  local first = redis.call('GET', KEYS[4])
  if first then
    local position = string.sub(first, 9)
    if string.sub(first, 1, 7) == common then return {'done', position, -1, redis.call('GET', KEYS[6])} end
    return {'skipped', position}
  end
end
if ARGV[4] == '' then
  local nodes = redis.call('PUBLISH', ARGV[1], ARGV[2] .. 'u' .. ARGV[3])
  if is_keyed then redis.call('SET', KEYS[4], id, 'PX', ARGV[8]) end
  return {'done', '', nodes}
end
local meta = redis.call('HMGET', KEYS[1], 'e', 's', 'g', 'v', 'w', 'x', 'y')
local epoch, top = meta[1], tonumber(meta[2] or '0')
local is_new = not epoch or meta[3] ~= generation
if ARGV[11] ~= '' and not is_new then
  -- An offset of another epoch can't limit the search in the current epoch.
  local since = ARGV[12] == epoch and tonumber(ARGV[11]) or 0
  local list = redis.call('XRANGE', KEYS[2], string.format('%.0f', since + 1), '+')
  for _, entry in ipairs(list) do
    if string.sub(entry[2][2], 2, 8) == common then
      return {'done', epoch .. ':' .. string.match(entry[1], '^%d+'), -1, redis.call('GET', KEYS[6])}
    end
  end
  -- If some publications after offset `since` are no longer stored, an earlier attempt may have stored one of them.
  if top > since and (not list[1] or tonumber(string.match(list[1][1], '^%d+')) > since + 1) then
    return {'unknown'}
  end
end
if ARGV[9] ~= '' and not is_new and meta[4] and meta[5] == ARGV[10] and meta[4] >= ARGV[9] then
  return {'skipped', epoch .. ':' .. meta[2]}
end
if is_new then
  redis.call('DEL', KEYS[1], KEYS[2])
  epoch, top = ARGV[7], 0
end
local offset = string.format('%.0f', top + 1)
-- Field x is the mark at which both lifetimes were last set. Field y is the mark at which the position ttl was last
-- set, also by comparisons and reads, which do not set the history ttl.
local function is_near(stored) return stored and math.abs(tonumber(ARGV[14]) - tonumber(stored)) <= tonumber(ARGV[15]) end
local is_lasting = not is_new and ARGV[14] and is_near(meta[6]) and is_near(meta[7])
-- Without NOMKSTREAM, an expired stream would be created again without a lifetime.
local is_added = is_lasting
  and redis.call('XADD', KEYS[2], 'NOMKSTREAM', 'MAXLEN', ARGV[4], offset .. '-0', 'd', ARGV[3])
local fields = {'e', epoch, 's', offset, 'g', generation, 'i', id}
local function set(field, value)
  fields[#fields + 1] = field
  fields[#fields + 1] = value
end
if ARGV[9] ~= '' then
  set('v', ARGV[9])
  set('w', ARGV[10])
end
if not is_added then
  redis.call('XADD', KEYS[2], 'MAXLEN', ARGV[4], offset .. '-0', 'd', ARGV[3])
  redis.call('PEXPIRE', KEYS[2], ARGV[5])
  if ARGV[14] then
    set('x', ARGV[14])
    set('y', ARGV[14])
  end
end
redis.call('HSET', KEYS[1], unpack(fields))
if not is_added then redis.call('PEXPIRE', KEYS[1], ARGV[6]) end
local position = epoch .. ':' .. offset
local nodes = redis.call('PUBLISH', ARGV[1], ARGV[2] .. 'p' .. position .. ':' .. ARGV[3])
if is_keyed then redis.call('SET', KEYS[4], id .. position, 'PX', ARGV[8]) end
return {'done', position, nodes, redis.call('INCR', KEYS[6])}
