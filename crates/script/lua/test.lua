-- `veche.test`: cases, clients and their assertions. Operations on the environment are requests to the runner, which
-- advances the simulation until it has an answer.
local native, inner, veche = ...

local await, can_wait, pcall, json = inner.await, inner.can_wait, inner.pcall, veche.json
local error, getmetatable, ipairs, pairs, rawset, setmetatable, tostring, type =
  error, getmetatable, ipairs, pairs, rawset, setmetatable, tostring, type
local show, differ = native.show, native.differ

local test = {}

---------------------------------------------------------------------------------------------------- cases

local cases, befores, afters = {}, {}, {}

local function bad(name, number, what, level)
  error("bad argument #" .. number .. " to '" .. name .. "': " .. what .. " expected", (level or 2) + 1)
end

-- Returns the names of the services that run; nil if all services run.
local function services_of(function_name, options)
  if options == nil then return nil end
  if type(options) ~= "table" then bad(function_name, 3, "a table of options", 4) end
  for key in pairs(options) do
    if key ~= "services" then
      error("bad argument #3 to '" .. function_name .. "': there is no option '" .. tostring(key) .. "'", 4)
    end
  end
  local services = options.services
  if services == nil or services == true then return nil end
  if services == false then return {} end
  if type(services) ~= "table" then bad(function_name, 3, "services: false or a list of names", 4) end
  for _, name in ipairs(services) do
    if type(name) ~= "string" then bad(function_name, 3, "services: false or a list of names", 4) end
  end
  return services
end

local function add(function_name, name, run, is_skipped, options)
  if type(name) ~= "string" or name == "" then bad(function_name, 1, "a name", 3) end
  if type(run) ~= "function" then bad(function_name, 2, "a function", 3) end
  local services = services_of(function_name, options)
  if can_wait() then error(function_name .. ": allowed only while the file is loaded, not inside a test", 3) end
  -- Level 5 of the stack is the line of the script that calls `test.case` or `test.skip`.
  local _, place = pcall(error, "", 5)
  cases[#cases + 1] = { name = name, run = run }
  native.case(name, place, is_skipped, services)
end

function test.case(name, run, options) add("test.case", name, run, false, options) end
function test.skip(name, run, options) add("test.skip", name, run, true, options) end

local function add_to(list, name, run)
  if type(run) ~= "function" then bad(name, 1, "a function", 3) end
  list[#list + 1] = run
end

function test.before_each(run) add_to(befores, "test.before_each", run) end
function test.after_each(run) add_to(afters, "test.after_each", run) end

local function run_case()
  for _, before in ipairs(befores) do before() end
  cases[native.chosen()].run()
  for _, after in ipairs(afters) do after() end
end

local handlers = {}

-- Errors are not caught here: catching one would unwind the stack, which shows where a run was stopped for CPU time.
function handlers.start()
  run_case()
  native.ended()
end

---------------------------------------------------------------------------------------------------- asking

-- Sends a request to the runner and returns the answer. `level` selects the function that an error
-- names, as in `error`; 1 is the function that calls this one.
local function ask(name, request, level)
  if not can_wait() then
    error(name .. ": allowed only in a test.case, and not in a callback such as that of table.sort", level + 1)
  end
  local token = await(native.ask, request)
  local value, why = native.answer(token)
  if why then error(name .. ": " .. why, level + 1) end
  return value
end

local OPTIONS_OF_ALL = { headers = true, cookies = true, remote = true, listener = true, within = true }

local function check_options(name, number, options, allowed)
  if options == nil then return {} end
  if type(options) ~= "table" then bad(name, number, "a table of options", 3) end
  for key in pairs(options) do
    if not (OPTIONS_OF_ALL[key] or allowed[key]) then
      error("bad argument #" .. number .. " to '" .. name .. "': there is no option '" .. tostring(key) .. "'", 3)
    end
  end
  return options
end

local function check_seconds(name, number, seconds, what)
  if seconds == nil then return nil end
  if type(seconds) ~= "number" or not (seconds >= 0 and seconds <= 31536000) then
    bad(name, number, (what or "") .. "a number of seconds from 0 to 31536000", 3)
  end
  return seconds
end

-- `deeper` is the number of additional stack levels between this function and the script.
local function list_headers(name, number, options, deeper)
  deeper = deeper or 0
  local list = {}
  local function put(key, value)
    if type(key) ~= "string" or (type(value) ~= "string" and type(value) ~= "number") then
      bad(name, number, "headers: a table with a string or a list of strings for each name", 4 + deeper)
    end
    list[#list + 1] = { key, tostring(value) }
  end
  local headers = options.headers
  if headers ~= nil and type(headers) ~= "table" then bad(name, number, "headers: a table", 3 + deeper) end
  for key, value in pairs(headers or {}) do
    if type(value) == "table" then
      for _, one in ipairs(value) do put(key, one) end
    else
      put(key, value)
    end
  end
  if type(options.cookies) == "table" then
    local crumbs = {}
    for key, value in pairs(options.cookies) do crumbs[#crumbs + 1] = key .. "=" .. tostring(value) end
    table.sort(crumbs)
    put("Cookie", table.concat(crumbs, "; "))
  elseif options.cookies ~= nil then
    bad(name, number, "cookies: a table", 3 + deeper)
  end
  table.sort(list, function(a, b) return a[1] < b[1] end)
  return list
end

-- Returns the text or bytes of a message; a table is encoded as JSON.
local function payload(name, number, data, kind)
  if type(data) == "table" then data = json.encode(data) end
  if type(data) == "number" then data = tostring(data) end
  if type(data) ~= "string" then bad(name, number, "a string, or a table to be sent as JSON,", 3) end
  if kind ~= nil and kind ~= "text" and kind ~= "binary" then bad(name, number + 1, '"text" or "binary"', 3) end
  return data, kind or "text"
end

---------------------------------------------------------------------------------------------------- comparing

local Matcher = {}

function test.any(kind)
  if kind ~= nil and type(kind) ~= "string" then bad("test.any", 1, "the name of a type", 2) end
  local matcher = { ["\0shown"] = "<any " .. (kind or "value") .. ">" }
  function matcher.accepts(value) return value ~= nil and (kind == nil or type(value) == kind) end
  return setmetatable(matcher, Matcher)
end

function test.like(pattern)
  if type(pattern) ~= "string" then bad("test.like", 1, "a pattern", 2) end
  local matcher = { ["\0shown"] = "<a string like " .. show(pattern) .. ">" }
  function matcher.accepts(value) return type(value) == "string" and value:find(pattern) ~= nil end
  return setmetatable(matcher, Matcher)
end

local DEPTH_MAX = 64

-- Returns the expected value, with received values in place of functions that accept them.
local function fill(expected, got, depth)
  if type(expected) == "function" then
    if expected(got) then return got end
    return { ["\0shown"] = "<a value that the function accepts>" }
  end
  if type(expected) ~= "table" then return expected end
  if getmetatable(expected) == Matcher then
    if expected.accepts(got) then return got end
    return expected
  end
  if depth == DEPTH_MAX then return expected end
  local filled = {}
  local is_table = type(got) == "table"
  for key, value in pairs(expected) do
    local other
    if is_table then other = got[key] end
    filled[key] = fill(value, other, depth + 1)
  end
  return filled
end

-- Returns a description of how `got` differs from `expected`; nil if it does not.
local function difference(expected, got) return differ(fill(expected, got, 0), got) end

local function what_of(words) return words and tostring(words) .. ": " or "" end

function test.equal(got, expected, words)
  local how = difference(expected, got)
  if how then error(what_of(words) .. "test.equal: the values differ\n" .. how, 2) end
end

function test.differ(got, unexpected, words)
  if not difference(unexpected, got) then
    error(what_of(words) .. "test.differ: the values are equal\n  both     " .. show(got):gsub("\n", "\n  "), 2)
  end
end

function test.ok(value, words)
  if not value then error(what_of(words) .. "test.ok: the value is " .. tostring(value), 2) end
  return value
end

function test.fail(words) error(words and tostring(words) or "test.fail", 2) end

local function results_of_match(words, text, first, ...)
  if first == nil then return nil end
  return first, ...
end

function test.match(text, pattern, words)
  if type(pattern) ~= "string" then bad("test.match", 2, "a pattern", 2) end
  if type(text) ~= "string" or not text:find(pattern) then
    error(what_of(words) .. "test.match: the text does not match\n  - pattern  " .. show(pattern) .. "\n  + got      "
      .. show(text):gsub("\n", "\n  "), 2)
  end
  return text:match(pattern)
end

function test.fails(f, pattern)
  if type(f) ~= "function" then bad("test.fails", 1, "a function", 2) end
  local ok, failure = pcall(f)
  if ok then error("test.fails: the function did not fail", 2) end
  local text = type(failure) == "string" and failure or show(failure)
  if pattern and not text:find(pattern) then
    error("test.fails: the function failed with another error\n  - pattern  " .. show(pattern) .. "\n  + got      " .. show(text), 2)
  end
  return failure
end

---------------------------------------------------------------------------------------------------- clients

local Client = {}
Client.__index = Client
Client.__metatable = false

local numbers = setmetatable({}, { __mode = "k" })

local function number_of(client, name)
  local number = numbers[client]
  if not number then
    error("bad argument #1 to 'client:" .. name .. "': a client expected (call it with a colon)", 3)
  end
  return number
end

function Client.__tostring(client) return "client " .. client.target end

local CONNECT_OPTIONS = { protocols = true }

function test.connect(target, options)
  if type(target) ~= "string" or target:sub(1, 1) ~= "/" then bad("test.connect", 1, 'a path such as "/chat?user=ann"', 2) end
  options = check_options("test.connect", 2, options, CONNECT_OPTIONS)
  local protocols = options.protocols
  if type(protocols) == "table" then protocols = table.concat(protocols, ", ") end
  local answer = ask("test.connect", {
    ask = "connect", target = target, headers = list_headers("test.connect", 2, options), protocols = protocols,
    remote = options.remote, listener = options.listener,
    within = check_seconds("test.connect", 2, options.within, "within: "),
  }, 2)
  if answer.refusal then
    answer.refusal.headers = answer.refusal.headers or {}
    return nil, answer.refusal
  end
  local client = setmetatable({ target = target, protocol = answer.protocol }, Client)
  numbers[client] = answer.client
  return client
end

function Client:send(data, kind)
  local number = number_of(self, "send")
  data, kind = payload("client:send", 1, data, kind)
  ask("client:send", { ask = "send", client = number, data = data, kind = kind }, 2)
  return self
end

local function shown_close(event)
  local reason = event.reason ~= "" and " " .. show(event.reason) or ""
  return event.code .. reason
end

local function shown_message(event)
  local kind = event.kind == "binary" and "binary " or ""
  return kind .. show(event.data)
end

local function shown_event(event)
  if event.code then return "the connection was closed: " .. shown_close(event) end
  return "a message arrived: " .. shown_message(event)
end

local function hint(answer)
  if answer.due then
    return "\n  the application does nothing for the next " .. answer.due .. " s: call test.advance(" .. answer.due .. ")"
  end
  return ""
end

local EXPECT_OPTIONS = { kind = true }
local ONLY_WITHIN = {}

local function within_of(name, number, options, allowed)
  options = check_options(name, number, options, allowed)
  if options.within ~= nil then
    local seconds = options.within
    if type(seconds) ~= "number" or not (seconds >= 0 and seconds <= 31536000) then
      bad(name, number, "within: a number of seconds from 0 to 31536000", 3)
    end
  end
  return options.within, options.kind
end

function Client:receive(options)
  local number = number_of(self, "receive")
  local within = within_of("client:receive", 1, options, ONLY_WITHIN)
  local event = ask("client:receive", { ask = "receive", client = number, within = within }, 2)
  if event.data then return event.data, event.kind end
  return nil, event.code and "closed" or "nothing", event.code, event.reason
end

function Client:expect(expected, options)
  local number = number_of(self, "expect")
  local within, kind = within_of("client:expect", 2, options, EXPECT_OPTIONS)
  local event = ask("client:expect", { ask = "receive", client = number, within = within }, 2)
  local title = tostring(self) .. ": "
  if event.code then
    error(title .. "a message was expected, but the connection was closed with " .. shown_close(event)
      .. "\n  - expected " .. show(fill(expected, nil, 0)):gsub("\n", "\n    "), 2)
  elseif not event.data then
    error(title .. "a message was expected, but none arrived\n  - expected "
      .. show(fill(expected, nil, 0)):gsub("\n", "\n    ") .. hint(event), 2)
  elseif kind and kind ~= event.kind then
    error(title .. "a " .. kind .. " message was expected, but a " .. event.kind .. " message arrived: " .. show(event.data), 2)
  end
  local data = event.data
  if expected == nil then return data end
  if type(expected) == "string" then
    local how = differ(expected, data)
    if how then error(title .. "a different message arrived\n" .. how, 2) end
    return data
  elseif type(expected) == "function" then
    if not expected(data, event.kind) then
      error(title .. "the function does not accept the message\n  + got      " .. shown_message(event), 2)
    end
    return data
  elseif type(expected) ~= "table" then
    bad("client:expect", 1, "a string, a table or a function", 2)
  elseif getmetatable(expected) == Matcher and expected.accepts(data) then
    return data
  end
  local ok, value = pcall(json.decode, data)
  if not ok then
    error(title .. "a JSON message was expected\n  - expected " .. show(fill(expected, nil, 0)):gsub("\n", "\n    ")
      .. "\n  + got      " .. shown_message(event), 2)
  end
  local how = difference(expected, value)
  if how then error(title .. "a different message arrived\n" .. how, 2) end
  return value
end

function Client:expect_nothing(options)
  local number = number_of(self, "expect_nothing")
  local within = within_of("client:expect_nothing", 1, options, ONLY_WITHIN)
  local event = ask("client:expect_nothing", { ask = "receive", client = number, within = within }, 2)
  if event.data or event.code then
    error(tostring(self) .. ": nothing was expected, but " .. shown_event(event), 2)
  end
end

function Client:expect_close(code, reason, options)
  local number = number_of(self, "expect_close")
  if code ~= nil and type(code) ~= "number" then bad("client:expect_close", 1, "a close code", 2) end
  local within = within_of("client:expect_close", 3, options, ONLY_WITHIN)
  local event = ask("client:expect_close", { ask = "receive", client = number, within = within }, 2)
  local wanted = "a close" .. (code and " with " .. code or "")
  if not event.code then
    local got = event.data and shown_event(event) or "the connection is still open" .. hint(event)
    error(tostring(self) .. ": " .. wanted .. " was expected, but " .. got, 2)
  elseif (code and code ~= event.code) or (reason and reason ~= event.reason) then
    local expected = { code = code or event.code, reason = reason or event.reason }
    error(tostring(self) .. ": the connection was closed with another code or reason\n  - expected " .. shown_close(expected)
      .. "\n  + got      " .. shown_close(event), 2)
  end
  return event.code, event.reason
end

-- Returns all received messages that no call of `receive` or `expect` has taken yet.
function Client:take()
  local number = number_of(self, "take")
  local messages = {}
  for _, event in ipairs(ask("client:take", { ask = "take", client = number }, 2)) do
    if event.data then messages[#messages + 1] = event.data end
  end
  return messages
end

function Client:is_open()
  local number = number_of(self, "is_open")
  return ask("client:is_open", { ask = "is_open", client = number }, 2)
end

function Client:close(code, reason)
  local number = number_of(self, "close")
  if code ~= nil and (type(code) ~= "number" or code % 1 ~= 0 or code < 1000 or code > 4999) then
    bad("client:close", 1, "a close code from 1000 to 4999", 2)
  end
  if reason ~= nil and type(reason) ~= "string" then bad("client:close", 2, "a string", 2) end
  ask("client:close", { ask = "close", client = number, code = code or 1000, reason = reason }, 2)
end

function Client:drop()
  local number = number_of(self, "drop")
  ask("client:drop", { ask = "drop", client = number }, 2)
end

function Client:pause()
  local number = number_of(self, "pause")
  ask("client:pause", { ask = "read", client = number, reads = false }, 2)
end

function Client:resume()
  local number = number_of(self, "resume")
  ask("client:resume", { ask = "read", client = number, reads = true }, 2)
end

---------------------------------------------------------------------------------------------------- requests

local REQUEST_OPTIONS = { method = true, path = true, json = true, body = true }

-- The metatable of responses. The field `json` is the decoded body, or nil if the body is not JSON.
local Response = {
  __index = function(self, key)
    if key ~= "json" then return nil end
    local ok, value = pcall(json.decode, self.body)
    if not ok then return nil end
    rawset(self, "json", value)
    return value
  end,
  __metatable = false,
}

function test.request(options, more)
  if type(options) == "string" then
    local method, path = options:match("^(%u+) (/.*)$")
    local given = options
    options = {}
    for key, value in pairs(check_options("test.request", 2, more, REQUEST_OPTIONS)) do options[key] = value end
    options.method, options.path = method or options.method, path or given
  end
  if type(options) ~= "table" then bad("test.request", 1, 'a table, or a text such as "GET /path"', 2) end
  check_options("test.request", 1, options, REQUEST_OPTIONS)
  local path, method, body = options.path, options.method, options.body
  if type(path) ~= "string" or path:sub(1, 1) ~= "/" then bad("test.request", 1, 'a path such as "/notes"', 2) end
  if body ~= nil and type(body) ~= "string" then bad("test.request", 1, "body: a string", 2) end
  if method ~= nil and (type(method) ~= "string" or not method:find("^%u+$")) then
    bad("test.request", 1, 'a method such as "POST"', 2)
  end
  local headers = list_headers("test.request", 1, options)
  if options.json ~= nil then
    if body then error("test.request: only one of body and json is allowed", 2) end
    body = json.encode(options.json)
    local has_type = false
    for _, header in ipairs(headers) do has_type = has_type or header[1]:lower() == "content-type" end
    if not has_type then headers[#headers + 1] = { "Content-Type", "application/json" } end
  end
  local response = ask("test.request", {
    ask = "request", method = method or (body and "POST" or "GET"), target = path, headers = headers, body = body,
    remote = options.remote, listener = options.listener,
    within = check_seconds("test.request", 1, options.within, "within: "),
  }, 2)
  response.headers = response.headers or {}
  return setmetatable(response, Response)
end

---------------------------------------------------------------------------------------------------- the world

function test.advance(seconds)
  if type(seconds) ~= "number" or not (seconds >= 0 and seconds <= 31536000) then
    bad("test.advance", 1, "a number of seconds from 0 to 31536000", 2)
  end
  ask("test.advance", { ask = "advance", seconds = seconds }, 2)
end

function test.settle() ask("test.settle", { ask = "advance", seconds = 0 }, 2) end

function test.publish(channel, data, kind)
  if type(channel) ~= "string" or channel == "" then bad("test.publish", 1, "the name of a channel", 2) end
  data, kind = payload("test.publish", 2, data, kind)
  return ask("test.publish", { ask = "publish", channel = channel, data = data, kind = kind }, 2)
end

function test.push(user, data, kind)
  if type(user) ~= "string" or user == "" then bad("test.push", 1, "the name of a user", 2) end
  data, kind = payload("test.push", 2, data, kind)
  return ask("test.push", { ask = "publish", user = user, data = data, kind = kind }, 2)
end

-- Returns the application's publications in order: the data of those to a channel, or { channel =
-- …, data = …, kind = … } for each publication if no channel is given.
function test.published(channel)
  if channel ~= nil and type(channel) ~= "string" then bad("test.published", 1, "the name of a channel", 2) end
  local found = {}
  for _, one in ipairs(ask("test.published", { ask = "published" }, 2)) do
    if channel == nil then
      found[#found + 1] = one
    elseif one.channel == channel then
      found[#found + 1] = one.data
    end
  end
  return found
end

-- Returns the application's log lines: { level = …, text = … }.
function test.log()
  local lines = {}
  for _, line in ipairs(ask("test.log", { ask = "log" }, 2)) do
    lines[#lines + 1] = { level = line.level, text = line.text }
  end
  return lines
end

-- Returns the logged error of the application that matches the pattern, and keeps it from failing the test. Raises an
-- error if no logged error matches.
function test.expect_error(pattern)
  if type(pattern) ~= "string" then bad("test.expect_error", 1, "a pattern", 2) end
  local others = {}
  for _, line in ipairs(ask("test.expect_error", { ask = "log" }, 2)) do
    if line.level == "error" and not line.is_expected then
      if line.text:find(pattern) then
        ask("test.expect_error", { ask = "forgive", number = line.number }, 2)
        return line.text
      end
      others[#others + 1] = "\n  + got      " .. line.text:match("[^\n]*")
    end
  end
  error("test.expect_error: no logged error matches the pattern\n  - pattern  " .. show(pattern) .. table.concat(others), 2)
end

-- Returns the seconds since the test began, by the test's clock.
function test.now() return ask("test.now", { ask = "now" }, 2) end

return test, handlers, {
  ask = ask, bad = bad, list_headers = list_headers, payload = payload, within_of = within_of, hint = hint,
  Client = Client, numbers = numbers,
}
