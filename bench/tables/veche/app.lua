-- The visits in a table. /load, /check and /churn operate on it;
-- /speed?side=table|plain|redis&what=read|scan|insert compares its speed with a Lua table of tables
-- and with Redis. Used by bench/tables/run, on one worker.

local veche = require "veche"

local ROWS = veche.config.rows
local OWNERS = math.floor(ROWS / 11)
local BEGIN, SPAN = 946684800, 473385600

local visits = veche.table("visits", {
  key = "id:u32",
  columns = { location = "u32", user = "u32", visited_at = "i32", mark = "u8" },
  indexes = { by_user = { "user", "visited_at" }, by_location = { "location", "visited_at" } },
  bytes_max = 4 * 1024 ^ 3,
})

local function at_random(id)
  return {
    id = id, location = math.random(OWNERS), user = math.random(OWNERS),
    visited_at = BEGIN + math.random(0, SPAN), mark = math.random(0, 5),
  }
end

local asks = {}

function asks.load(query)
  return { rows = visits:load_csv(query.file), info = visits:info() }
end

-- Returns checksums that every program of this comparison must reproduce: one of the order of rows in
-- the lists of a thousand users, and one of the marks of a thousand places.
function asks.check()
  local order, marks = 0, 0
  for key = 1, 1000 do
    local place = 0
    for visit in visits:scan("by_user", key, { columns = { "visited_at" } }) do
      place = place + 1
      order = order + place * visit.visited_at
    end
    marks = marks + key * visits:aggregate("mark", "by_location", key).sum
  end
  return { order = order, marks = marks, rows = visits:count() }
end

-- Moves `count` visits to another user, place and time, and adds as many new visits.
function asks.churn(query)
  local count = tonumber(query.count)
  for i = 1, count do
    local row = at_random()
    visits:update(math.random(ROWS), row)
    row.id = ROWS + i
    visits:insert(row)
    if i % 1000 == 0 then veche.sleep(0) end
  end
  -- Checks that each row is in both indexes exactly once.
  local by_user, by_location = 0, 0
  for key = 1, OWNERS do
    by_user, by_location = by_user + visits:count("by_user", key), by_location + visits:count("by_location", key)
    if key % 1000 == 0 then veche.sleep(0) end
  end
  return { rows = visits:count(), by_user = by_user, by_location = by_location, info = visits:info() }
end

-- ---------------------------------------------------------------------------------------------------- sides

local OF_USER = { columns = { "id", "visited_at", "mark" } }
local sides = {}

sides.table = {
  read = function(id) return visits:get(id, "mark") end,
  scan = function(user)
    local sum = 0
    for _, visited_at, mark in visits:values("by_user", user, OF_USER) do sum = sum + visited_at + mark end
    return sum
  end,
  insert = function(row) visits:insert(row) end,
}

local plain, by_user, by_location

-- Inserts a row into its list, which is sorted by date. A list has about eleven rows, and most rows
-- belong near its end.
local function put(index, key, row)
  local list = index[key]
  if not list then
    list = {}
    index[key] = list
  end
  local place = #list
  while place > 0 and list[place].visited_at > row.visited_at do place = place - 1 end
  table.insert(list, place + 1, row)
end

local function fill_plain()
  plain, by_user, by_location = {}, {}, {}
  for row in visits:scan("key") do
    plain[row.id] = { location = row.location, user = row.user, visited_at = row.visited_at, mark = row.mark }
    put(by_user, row.user, plain[row.id])
    put(by_location, row.location, plain[row.id])
  end
end

sides.plain = {
  prepare = fill_plain,
  read = function(id) return plain[id].mark end,
  scan = function(user)
    local sum = 0
    for _, visit in ipairs(by_user[user] or {}) do sum = sum + visit.visited_at + visit.mark end
    return sum
  end,
  insert = function(row)
    plain[row.id] = { location = row.location, user = row.user, visited_at = row.visited_at, mark = row.mark }
    put(by_user, row.user, plain[row.id])
    put(by_location, row.location, plain[row.id])
  end,
}

local r
sides.redis = {
  prepare = function() r = veche.redis.connect(veche.config.redis) end,
  read = function(id) return tonumber(r:hget("v:" .. id, "mark")) end,
  scan = function(user)
    -- The sorted set contains only dates, so the other columns need a read of each row.
    local sum, commands = 0, {}
    local ids = r:zrange("u:" .. user, 0, -1)
    for i, id in ipairs(ids) do commands[i] = { "hmget", "v:" .. id, "visited_at", "mark" } end
    if #commands == 0 then return 0 end
    for _, found in ipairs(r:pipeline(commands)) do sum = sum + found[1] + found[2] end
    return sum
  end,
  insert = function(row)
    r:pipeline {
      { "hset", "v:" .. row.id, "location", row.location, "user", row.user, "visited_at", row.visited_at, "mark", row.mark },
      { "zadd", "u:" .. row.user, row.visited_at, row.id },
      { "zadd", "l:" .. row.location, row.visited_at, row.id },
    }
  end,
}

local last = ROWS + 10000000

-- Returns the nanoseconds per operation over `count` operations: processor time, or wall-clock time
-- for Redis. Keys are chosen among the first `rows` rows; with `hot`, among the first ten.
function asks.speed(query)
  local side, what, count = sides[query.side], query.what, tonumber(query.count)
  local rows = tonumber(query.rows) or ROWS
  if side.prepare then
    side.prepare()
    side.prepare = nil
  end
  local keys = {}
  math.randomseed(count)
  local most = query.hot and 10 or what == "scan" and math.floor(ROWS / 11) or rows
  for i = 1, count do
    if what ~= "insert" then
      keys[i] = math.random(most)
    else
      last = last + 1
      keys[i] = at_random(last)
    end
  end
  veche.sleep(0)
  -- Only Redis calls wait. The event loop's clock does not advance while a handler runs without
  -- waiting, so operations on tables are measured with `os.clock`.
  local run, sum, clock = side[what], 0, query.side == "redis" and veche.time.monotonic or os.clock
  local began = clock()
  for i = 1, count do sum = sum + (run(keys[i]) or 0) end
  local took = clock() - began
  return { ns = took / count * 1e9, sum = sum }
end

return {
  request = function(req)
    local ask = asks[req.path:sub(2)]
    if not ask then return 404, "" end
    return ask(req.query)
  end,
}
