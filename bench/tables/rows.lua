-- rows.lua FILE: stores the visits in FILE as a Lua table of tables with named fields, and the
-- indexes as tables of lists of rows. Prints a line of JSON.

local function memory(name)
  for line in io.lines("/proc/self/status") do
    local kilobytes = line:match("^" .. name .. ":%s*(%d+)")
    if kilobytes then return tonumber(kilobytes) * 1024 end
  end
end

local function settled()
  collectgarbage()
  collectgarbage()
  return memory("VmRSS")
end

local started, before = os.clock(), settled()
local visits = {}
local lines = io.lines(arg[1])
lines()
for line in lines do
  local id, location, user, visited_at, mark = line:match("(%d+),(%d+),(%d+),(%d+),(%d+)")
  visits[tonumber(id)] = {
    location = tonumber(location), user = tonumber(user), visited_at = tonumber(visited_at), mark = tonumber(mark),
  }
end
local with_rows = settled()

local by_user, by_location = {}, {}
for _, visit in ipairs(visits) do
  for index, key in pairs { [by_user] = visit.user, [by_location] = visit.location } do
    local list = index[key]
    if not list then
      list = {}
      index[key] = list
    end
    list[#list + 1] = visit
  end
end
for _, index in ipairs { by_user, by_location } do
  for _, list in pairs(index) do table.sort(list, function(a, b) return a.visited_at < b.visited_at end) end
end
local with_indexes, took = settled(), os.clock() - started

-- Checksums that every program of this comparison must reproduce. `order` depends on the order of
-- the visits in a thousand lists, `marks` on the marks in a thousand lists.
local order, marks = 0, 0
for key = 1, 1000 do
  for place, visit in ipairs(by_user[key] or {}) do order = order + place * visit.visited_at end
  for _, visit in ipairs(by_location[key] or {}) do marks = marks + key * visit.mark end
end
print(('{"rows":%d,"before":%d,"with_rows":%d,"with_indexes":%d,"highest":%d,"cpu_s":%.1f,"order":%d,"marks":%d}'):format(
  #visits, before, with_rows, with_indexes, memory("VmHWM"), took, order, marks))
