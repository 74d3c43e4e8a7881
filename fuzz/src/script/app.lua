-- Interprets bytes as programs, which call functions with strange arguments. Results of calls become arguments of later
-- calls. The script checks that errors are strings; the fuzz target checks everything else.
local veche = require "veche"
local names = veche.config.names
local app = {}

local char, byte, sub = string.char, string.byte, string.sub
local pcall, type, select, unpack, pairs, ipairs, error = pcall, type, select, unpack, pairs, ipairs, error
local sort = table.sort

---------------------------------------------------------------------------------------------------- what is called

local functions, labels, seen = {}, {}, {}

local function collect(prefix, from)
  local keys = {}
  for key in pairs(from) do
    if type(key) == "string" then keys[#keys + 1] = key end
  end
  sort(keys)
  for _, key in ipairs(keys) do
    local value = from[key]
    if type(value) == "function" then
      functions[#functions + 1], labels[value] = value, prefix .. key
    elseif type(value) == "table" and not seen[value] and key ~= "config" then
      seen[value] = true
      collect(prefix .. key .. ".", value)
    end
  end
end

collect("veche.", veche)
local own = #functions
for _, library in ipairs { "bit", "coroutine", "debug", "math", "os", "string", "table" } do
  if _G[library] then collect(library .. ".", _G[library]) end
end
for _, name in ipairs {
  "assert", "error", "getmetatable", "ipairs", "next", "pairs", "pcall", "print", "rawequal", "rawget", "rawset",
  "require", "select", "setmetatable", "tonumber", "tostring", "type", "unpack", "xpcall", "load", "loadstring",
} do
  if _G[name] then functions[#functions + 1], labels[_G[name]] = _G[name], name end
end

---------------------------------------------------------------------------------------------------- with what

local strange = {
  true, false, 0, 1, -1, 0.5, 2, 16, 1000, 65536, 2 ^ 31, 2 ^ 53, 1e300, -1e300, 0 / 0, 1 / 0, -1 / 0,
  "", "a", "\0", "\255", "%", "[", "a=b", "GET", "/a/:b", "http://127.0.0.1:1/", "text", "binary", "hex", "raw",
  "{\"a\":[1,null]}", "2026-11-21T12:00:00Z", ("x"):rep(100), ("x"):rep(100000), ("%a-"):rep(50),
  function() error("a callback's own") end, function() veche.sleep(0.001) return 1 end, function(...) return ... end,
  setmetatable({}, { __index = function() error("touched") end }),
  setmetatable({}, { __tostring = function() return 7 end, __call = function() veche.sleep(0) end }),
  setmetatable({}, { __len = function() return -1 end, __eq = function() error("equal") end, __mode = "kv" }),
}

local results, count = {}, 0
local KEPT = 48

local function keep(label, ok, ...)
  if not ok then
    if type((...)) == "userdata" then print("FOUND: an error of " .. label .. " is no words") end
    return
  end
  for place = 1, select("#", ...) do
    local value = select(place, ...)
    if value ~= nil and place <= 4 then
      count = count % KEPT + 1
      results[count] = value
    end
  end
end

local run

local function take(program)
  local value = byte(program.text, program.at)
  program.at = program.at + 1
  return value or 0
end

local function value_of(program)
  local kind = take(program)
  if kind < 64 then return strange[kind % #strange + 1] end
  if kind < 140 then return results[kind % KEPT + 1] end
  if kind < 160 then return program.subject end
  if kind < 176 then return names[(take(program) * 256 + take(program)) % #names + 1] end
  if kind < 190 then return take(program) end
  if kind < 200 then
    local length = take(program) % 12
    program.at = program.at + length
    return sub(program.text, program.at - length, program.at - 1)
  end
  if kind < 214 then
    return function(...)
      keep("a callback", true, ...)
      run(program, 2)
      return value_of(program)
    end
  end
  if kind < 240 then
    local made = {}
    for place = 1, take(program) % 4 do
      local key = place
      if kind >= 225 then key = names[(take(program) * 256 + take(program)) % #names + 1] end
      made[key] = value_of(program)
    end
    return made
  end
  return nil
end

local function arguments_of(program, most)
  local count, made = take(program) % (most + 1), {}
  for place = 1, count do made[place] = value_of(program) end
  return made, count
end

local function method(object, name, ...) return object[name](object, ...) end
local function index(object, name) return object[name] end
local function assign(object, name, value) object[name] = value end

function run(program, steps)
  while steps > 0 and program.at <= #program.text do
    steps = steps - 1
    local kind = take(program)
    if kind < 120 then
      local chosen = functions[(take(program)) % own + 1]
      local arguments, number = arguments_of(program, 4)
      keep(labels[chosen], pcall(chosen, unpack(arguments, 1, number)))
    elseif kind < 140 then
      local chosen = functions[(take(program)) % #functions + 1]
      local arguments, number = arguments_of(program, 4)
      keep(labels[chosen], pcall(chosen, unpack(arguments, 1, number)))
    elseif kind < 220 then
      local object = value_of(program)
      local name = names[(take(program) * 256 + take(program)) % #names + 1]
      local arguments, number = arguments_of(program, 3)
      keep(name, pcall(method, object, name, unpack(arguments, 1, number)))
    elseif kind < 235 then
      keep("an index", pcall(index, value_of(program), value_of(program)))
    elseif kind < 245 then
      keep("an assignment", pcall(assign, value_of(program), value_of(program), value_of(program)))
    else
      keep("tostring", pcall(tostring, value_of(program)))
    end
  end
end

local function begin(text, subject) return run({ text = text, at = 1, subject = subject }, 40) end

---------------------------------------------------------------------------------------------------- when

function app.open(conn) keep("open", true, conn) end

function app.message(conn, data)
  if data == "alive?" then return conn:send("alive") end
  begin(data, conn)
end

function app.close(conn, code, reason) begin(reason, conn) end
function app.drain(conn) keep("drain", true, conn) end

function app.handshake(req)
  begin(req.query.program or "", req)
  return results[1]
end

function app.request(req)
  begin(req.body, req)
  return results[1], results[2], results[3]
end

function app.stop() begin(char(0, 1, 2, 3), nil) end

return app
