-- The message `KIND NAME` calls the function NAME with arguments of the kind KIND that are as long as memory allows. A
-- message longer than a mebibyte is stored, and used as an argument of later calls.
local veche = require "veche"
local app = {}

local function nothing() end

local long, many, fields = {}, {}, {}
for at = 1, 20000 do many[at], fields["key " .. at] = at, at end

-- Valid addresses, at which nothing listens, and a list that repeats one long string.
local HTTP, WS = "http://127.0.0.1:9/", "ws://127.0.0.1:9/"
local repeated, piece = {}, ("z"):rep(2 ^ 20)
for at = 1, 5000 do repeated[at] = piece end

-- The objects whose methods are called, by the names that they have in the type definitions.
local objects = {
  dict = veche.dict("dict", { bytes_max = 1048576 }), queue = veche.queue("queue", { bytes_max = 1048576 }), channel = veche.channel(10), semaphore = veche.semaphore(1),
  waitgroup = veche.waitgroup(), router = veche.router(), gauge = veche.metrics.gauge("a_gauge", "a gauge"),
  counter = veche.counter "counter", histogram = veche.metrics.histogram("a_histogram", "a histogram"),
  table = veche.table("rows", { key = "id:u32", columns = { text = "string" } }),
  database = veche.mysql.connect "mysql://localhost/none", server = veche.redis.connect "redis://localhost",
  log = veche.log,
}

function app.start()
  objects.task = veche.spawn(function() veche.sleep(1e6) end)
end

-- Returns the function of a name such as `string.find` or `dict:get`, and the object if it is a method.
local function find(name, conn)
  local object, method = name:match "^([%w_]+):([%w_]+)$"
  if object then
    object = object == "conn" and conn or objects[object]
    return object and object[method], object
  end
  local value = name:find "^veche%." and { veche = veche } or _G
  for part in name:gmatch "[^.]+" do value = value[part] end
  return value
end

local function arguments(kind)
  local text = long[1]
  if kind == 1 then return text end
  if kind == 2 then return text, text end
  if kind == 3 then return 1, text, text end
  if kind == 4 then return "a", text, text end
  if kind == 5 then return nothing, text end
  if kind == 6 then return many, text end
  if kind == 7 then return fields, many end
  if kind == 8 then return "a", fields, { a = text } end
  if kind == 9 then return { a = text, text }, text end
  if kind == 10 then return HTTP, { headers = { x = repeated } }, { query = { a = repeated } } end
  if kind == 11 then return HTTP, { form = { a = repeated } }, { headers = { x = repeated } } end
  if kind == 12 then return HTTP, text, { query = { a = text } } end
  if kind == 13 then return WS, { protocols = repeated }, { headers = { x = repeated } } end
  if kind == 14 then return { url = HTTP, headers = { x = repeated }, channels = repeated, user = piece }, repeated end
  return "a", repeated, repeated
end

local function call(f, object, ...)
  if object then return f(object, ...) end
  return f(...)
end

function app.message(conn, data)
  if #data > 2 ^ 20 then
    long[#long + 1] = data
    return
  end
  local kind, name = data:match "^(%d+) (.+)$"
  local f, object = find(name, conn)
  if type(f) ~= "function" then error("there is no " .. name) end
  pcall(call, f, object, arguments(tonumber(kind)))
end

return app
