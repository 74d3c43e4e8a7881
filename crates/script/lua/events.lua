-- `req:events`: a response of server-sent events (WHATWG HTML, section 9.2).
--
-- While a script sends nothing, comments are sent periodically, so that proxies keep the connection open and the server
-- notices when the client is gone.
local inner = ...

local await, native, spawn, pcall = inner.await, inner.native, inner.spawn, inner.pcall
local encode = native.modules.json.encode
local error, pairs, setmetatable, tostring, type = error, pairs, setmetatable, tostring, type
local concat, find, gsub = table.concat, string.find, string.gsub

local HEARTBEAT_S = 15
local RETRY_MAX_MS = 2 ^ 31

local Events = {}
Events.__index = Events
Events.__metatable = false

local function check(self, name)
  if type(self) ~= "table" or self.write == nil then
    error("bad argument #1 to 'events:" .. name .. "': a stream of events expected (call it with a colon)", 3)
  end
end

-- Functions that return the lines of one field, or nil and the expected type.
local fields = {}

local function line(name)
  return function(value)
    if type(value) == "number" then value = tostring(value) end
    if type(value) ~= "string" or find(value, "[%z\r\n]") then
      return nil, name .. ": a string without line breaks"
    end
    return name .. ": " .. value .. "\n"
  end
end

fields.event, fields.id = line "event", line "id"

function fields.data(value)
  if type(value) == "table" then value = encode(value) end
  if type(value) == "number" then value = tostring(value) end
  if type(value) ~= "string" then return nil, "data: a string, or a table for JSON," end
  if find(value, "\r", 1, true) then value = gsub(value, "\r\n?", "\n") end
  if find(value, "\n", 1, true) then value = gsub(value, "\n", "\ndata: ") end
  return "data: " .. value .. "\n"
end

function fields.retry(value)
  if type(value) ~= "number" or not (value >= 0 and value <= RETRY_MAX_MS and value % 1 == 0) then
    return nil, "retry: a whole number of milliseconds from 0 to 2^31"
  end
  return ("retry: %d\n"):format(value)
end

function Events:send(event)
  check(self, "send")
  if type(event) == "string" then event = { data = event } end
  if type(event) ~= "table" then
    error("bad argument #1 to 'events:send': a string, or a table of event, id, data and retry expected", 2)
  end
  local lines = {}
  for name, value in pairs(event) do
    local field = fields[name]
    if not field then
      error("bad argument #1 to 'events:send': the fields are event, id, data and retry", 2)
    end
    local text, expected = field(value)
    if not text then error("bad argument #1 to 'events:send': " .. expected .. " expected", 2) end
    lines[#lines + 1] = text
  end
  if #lines == 0 then error("bad argument #1 to 'events:send': an event must have at least one field", 2) end
  lines[#lines + 1] = "\n"
  self.written_s = native.now()
  return self.write(concat(lines))
end

function Events:subscribe(channel)
  check(self, "subscribe")
  return await(native.listen, self.number, channel)
end

function Events:unsubscribe(channel)
  check(self, "unsubscribe")
  return native.unlisten(self.number, channel)
end

function Events:wait()
  check(self, "wait")
  while true do await(native.sleep, 86400) end
end

local function beat(stream)
  while true do
    local due_s, now_s = stream.written_s + HEARTBEAT_S, native.now()
    if due_s > now_s then
      await(native.sleep, due_s - now_s)
    else
      stream.written_s = now_s
      stream.write(":\n\n")
    end
  end
end

function inner.request_methods.events(request, f)
  if type(request) ~= "table" or type(request[1]) ~= "number" then
    error("bad argument #1 to 'req:events': a request expected (call it with a colon)", 2)
  end
  if type(f) ~= "function" then error("bad argument #1 to 'req:events': a function expected", 2) end
  local number, last_id = request[1], request.headers["last-event-id"]
  local headers = {
    ["Content-Type"] = "text/event-stream",
    ["Cache-Control"] = "no-store",
    -- Tells nginx not to buffer the response.
    ["X-Accel-Buffering"] = "no",
  }
  return 200, headers, function(write)
    local stream = setmetatable({ write = write, number = number, last_id = last_id, written_s = native.now() }, Events)
    local heart = spawn(beat, stream)
    local ok, why = pcall(f, stream)
    heart:cancel()
    if not ok then error(why, 0) end
  end
end
