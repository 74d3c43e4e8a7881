-- Returns the members of a channel on nodes with a lease, or the numbers of clients and of users.
--
-- KEYS: members of the channel. ARGV: calling node; prefix of leases; 'counts' to return only the numbers, or the
-- maximum number of clients for which the members are listed (with more, only the numbers are returned).
local all = redis.call('HGETALL', KEYS[1])
local is_live = {[ARGV[1]] = true}
local list, users, clients, count = {}, {}, 0, 0
for place = 1, #all, 2 do
  local node = string.sub(all[place], 1, 16)
  if is_live[node] == nil then is_live[node] = redis.call('EXISTS', ARGV[2] .. node) == 1 end
  if is_live[node] then
    clients = clients + 1
    local length, rest = string.match(all[place + 1], '^(%d+):(.*)$')
    if length then
      local user = string.sub(rest, 1, tonumber(length))
      if not users[user] then
        users[user] = true
        count = count + 1
      end
      if ARGV[3] ~= 'counts' then list[#list + 1] = string.sub(rest, tonumber(length) + 1) end
    end
  end
end
if ARGV[3] ~= 'counts' and clients <= tonumber(ARGV[3]) then return {clients, count, list} end
return {clients, count}
