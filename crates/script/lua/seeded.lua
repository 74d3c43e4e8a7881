-- Only in tests: takes random numbers from the seed, and the time from the test's clock.
local tools, native = ...

local keys_of, word, identify = tools.keys, tools.word, native.identify
local raw_pairs, rawget, type, pcall, floor, sort = pairs, rawget, type, pcall, math.floor, table.sort

-- Connections among the keys from `first` on are ordered by their ids, and come before keys without an order.
local function order_connections(keys, first)
  local ids, connections, others = {}, {}, {}
  for place = first, #keys do
    local key = keys[place]
    local is_one, index, generation = pcall(identify, key)
    if is_one and type(key) == "userdata" then
      connections[#connections + 1] = key
      ids[key] = index * 4294967296 + generation
    else
      others[#others + 1] = key
    end
  end
  sort(connections, function(a, b) return ids[a] < ids[b] end)
  local count = #connections
  for place = 1, count do keys[first - 1 + place] = connections[place] end
  for place = 1, #others do keys[first - 1 + count + place] = others[place] end
  return first - 1 + count
end

-- The items of a list keep their order. The other keys, which have no defined order, are visited in an order determined by the
-- seed.
function pairs(t)
  if type(t) ~= "table" then return raw_pairs(t) end
  local keys, count, length = keys_of(t)
  if count < #keys then count = order_connections(keys, count + 1) end
  for place = count, 2, -1 do
    local other = word() % place + 1
    keys[place], keys[other] = keys[other], keys[place]
  end
  local place = 0
  return function(t)
    while true do
      place = place + 1
      local key = place
      if place > length then
        key = keys[place - length]
        if key == nil then return nil end
      end
      local value = rawget(t, key)
      -- The key may have been removed during the iteration.
      if value ~= nil then return key, value end
    end
  end, t, nil
end

local date, time = os.date, os.time

function os.time(parts)
  if parts == nil then return floor(native.wall()) end
  return time(parts)
end

function os.date(format, at) return date(format or "%c", at or floor(native.wall())) end

function os.clock() return native.now() end

math.randomseed(word())
