-- `veche.test`, second part: stubs of other servers, and the requests that they received.
--
-- Rust stores the stubs, and sends fixed answers itself. If an answer is a function, this file calls it in a coroutine
-- that waits for calls of the stub.
local native, inner, veche, test, tools = ...

local pcall, json, show = inner.pcall, veche.json, native.show
local ask, bad, list_headers, payload = tools.ask, tools.bad, tools.list_headers, tools.payload
local within_of, hint, Client, numbers = tools.within_of, tools.hint, tools.Client, tools.numbers
local error, ipairs, pairs, select, setmetatable, tostring, type, unpack =
  error, ipairs, pairs, select, setmetatable, tostring, type, unpack

local FAILS = {
  timeout = true, pool_full = true, unreachable = true, connection_lost = true, refused = true, invalid = true, broken = true,
}

-- Returns whether a stub's answer is a failure. Raises an error if the failure is invalid; `level` says which
-- function the error blames, as in `error`.
local function is_failure(name, number, answer, level)
  if type(answer) ~= "table" or answer.fails == nil then return false end
  if not FAILS[answer.fails] then
    local known = 'fails: "timeout", "pool_full", "unreachable", "connection_lost", "refused", "invalid" or "broken"'
    bad(name, number, known, level + 1)
  end
  if answer.words ~= nil and type(answer.words) ~= "string" then bad(name, number, "words: a string", level + 1) end
  return true
end

local function as_it_is(answer) return answer end

-- Adds a stub's answer to a request.
local function put_answer(request, name, number, answer, read, level)
  if is_failure(name, number, answer, level + 1) then
    request.fails, request.words = answer.fails, answer.words
  else
    request.answer = read(answer, name, number, level + 1)
  end
  return request
end

-- Calls the stub's function for each request, in a separate coroutine.
local function serve(stub, name, number, run, read)
  veche.spawn(function()
    while true do
      local call = ask(name, { ask = "called", stub = stub }, 1)
      veche.spawn(function()
        local request = { ask = "reply", call = call.call }
        local ok, why = pcall(function()
          put_answer(request, name, number, run(unpack(call.arguments)), read, 1)
        end)
        if not ok then request.error = type(why) == "string" and why or show(why) end
        ask(name, request, 1)
      end)
    end
  end)
end

local function add_stub(kind, name, number, method, target, answer, read)
  local request = { ask = "stub", kind = kind, method = method, target = target, runs = type(answer) == "function" }
  if not request.runs then put_answer(request, name, number, answer, read, 3) end
  local stub = ask(name, request, 3)
  if request.runs then serve(stub, name, number, answer, read) end
  return stub
end

local ANSWER = { status = true, headers = true, cookies = true, body = true, json = true, parts = true }

local function check_status(name, number, status, level)
  if type(status) ~= "number" or not (status >= 200 and status <= 999 and status % 1 == 0) then
    bad(name, number, "a status from 200 to 999", level + 1)
  end
end

local function read_http(answer, name, number, level)
  if type(answer) ~= "table" then bad(name, number, "a table", level + 1) end
  for key in pairs(answer) do
    if not ANSWER[key] then
      error("bad argument #" .. number .. " to '" .. name .. "': there is no field '" .. tostring(key) .. "'", level + 1)
    end
  end
  local status, parts = answer.status or 200, answer.parts or { answer.body or "" }
  check_status(name, number, status, level + 1)
  if type(parts) ~= "table" then bad(name, number, "parts: a list of strings", level + 1) end
  for _, part in ipairs(parts) do
    if type(part) ~= "string" then bad(name, number, "body: a string, or parts: a list of strings,", level + 1) end
  end
  local headers = list_headers(name, number, answer, level - 1)
  if answer.json ~= nil then
    parts = { json.encode(answer.json) }
    headers[#headers + 1] = { "Content-Type", "application/json" }
  end
  return { status = status, headers = headers, parts = parts }
end

-- Sets the answer to the application's HTTP requests with this method and URL.
function test.stub_http(method, url, answer)
  if type(method) ~= "string" or not (method == "*" or method:find("^%u+$")) then
    bad("test.stub_http", 1, 'a method such as "GET", or "*",', 2)
  end
  if type(url) ~= "string" or not url:find("^https?://") then bad("test.stub_http", 2, "an address with http:// or https://", 2) end
  if type(answer) ~= "table" and type(answer) ~= "function" then bad("test.stub_http", 3, "a table or a function", 2) end
  add_stub("http", "test.stub_http", 3, method, url, answer, read_http)
end

-- Sets the addresses that the application gets for a host name.
function test.stub_resolve(host, addresses)
  if type(host) ~= "string" or host == "" then bad("test.stub_resolve", 1, "a host's name", 2) end
  if type(addresses) == "string" then addresses = { addresses } end
  if type(addresses) ~= "table" or #addresses == 0 and addresses.fails == nil then
    bad("test.stub_resolve", 2, "an address, or a list of addresses,", 2)
  end
  add_stub("resolve", "test.stub_resolve", 2, "*", host, addresses, as_it_is)
end

-- Sets the answer to a MySQL statement of the application. A `sql` that ends with "*" stands for all statements that
-- begin with the text before it.
function test.stub_mysql(sql, answer)
  if type(sql) ~= "string" or not sql:find("%S") then bad("test.stub_mysql", 1, 'a statement, or its beginning and "*",', 2) end
  if answer == nil then bad("test.stub_mysql", 2, "rows, a value, { affected = … } or a function", 2) end
  add_stub("mysql", "test.stub_mysql", 2, "*", sql, answer, as_it_is)
end

-- Sets the answer to a Redis command of the application, such as "GET name" or "GET *".
function test.stub_redis(command, ...)
  if type(command) ~= "string" or not command:find("^%S") then
    bad("test.stub_redis", 1, 'a command such as "GET name" or "GET *"', 2)
  end
  if select("#", ...) == 0 then bad("test.stub_redis", 2, "an answer, which may be nil, or a function", 2) end
  add_stub("redis", "test.stub_redis", 2, "*", command, (...), as_it_is)
end

-- Publishes to the application's subscriptions on Redis.
function test.redis_publish(channel, data)
  if type(channel) ~= "string" then bad("test.redis_publish", 1, "the name of a channel", 2) end
  data = payload("test.redis_publish", 2, data)
  return ask("test.redis_publish", { ask = "redis_publish", channel = channel, data = data }, 2)
end

local Server = {}
Server.__index = Server
Server.__metatable = false

local SERVER_OPTIONS = { protocol = true, status = true, body = true }
local stubs = setmetatable({}, { __mode = "k" })

local function read_websocket(options, name, number, level)
  for key in pairs(options) do
    if not SERVER_OPTIONS[key] then
      error("bad argument #" .. number .. " to '" .. name .. "': there is no option '" .. tostring(key) .. "'", level + 1)
    end
  end
  local protocol, body = options.protocol, options.body
  if options.status ~= nil then check_status(name, number, options.status, level + 1) end
  if protocol ~= nil and type(protocol) ~= "string" then bad(name, number, "protocol: a string", level + 1) end
  if body ~= nil and type(body) ~= "string" then bad(name, number, "body: a string", level + 1) end
  return { protocol = protocol, status = options.status, body = body }
end

-- Creates a WebSocket server that the application can dial.
function test.stub_websocket(url, options)
  if type(url) ~= "string" or not url:find("^wss?://") then
    bad("test.stub_websocket", 1, "an address with ws:// or wss://", 2)
  end
  if options == nil then options = {} end
  if type(options) ~= "table" then bad("test.stub_websocket", 2, "a table of options", 2) end
  local server = setmetatable({ url = url }, Server)
  stubs[server] = add_stub("websocket", "test.stub_websocket", 2, "*", url, options, read_websocket)
  return server
end

-- Returns the next connection that the application has opened to this server, as a client object.
function Server:accept(options)
  local stub = stubs[self]
  if not stub then error("bad argument #1 to 'server:accept': a server expected (call it with a colon)", 2) end
  local within = within_of("server:accept", 1, options, {})
  local answer = ask("server:accept", { ask = "accept", stub = stub, within = within }, 2)
  if not answer.client then
    error("server " .. self.url .. ": the application was expected to open a connection, but opened none" .. hint(answer), 2)
  end
  local client = setmetatable({ target = answer.url, protocol = answer.protocol, headers = answer.headers or {} }, Client)
  numbers[client] = answer.client
  return client
end

-- Returns the HTTP requests that the application has made: { method = …, url = …, headers = …, body = … }.
function test.requests() return ask("test.requests", { ask = "requests" }, 2) end

-- Returns the MySQL statements that the application has run: { sql = …, values = …, database = …, host = … }.
function test.queries() return ask("test.queries", { ask = "queries" }, 2) end

-- Returns the Redis commands that the application has sent, such as { "GET", "name" }.
function test.commands() return ask("test.commands", { ask = "commands" }, 2) end
